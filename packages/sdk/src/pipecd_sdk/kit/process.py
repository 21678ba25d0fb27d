# SPDX-License-Identifier: Apache-2.0
"""Arguments of programs, of which a word from outside is never an option; and what outlives us.

Example:
    >>> [*own("kubectl", "get", "--"), word("-A")]
    [own('kubectl'), own('get'), own('--'), word('-A')]
"""

from pipecd_runtime.process import (
    Argument,
    BadArgumentError,
    join_option,
    own,
    spawn_detached,
    word,
)

__all__ = ["Argument", "BadArgumentError", "join_option", "own", "spawn_detached", "word"]
