# SPDX-License-Identifier: Apache-2.0
"""Secrets: closed for git, opened by piped, put where they are named, masked wherever they show.

`cipher` closes and opens, `files` and `placeholder` put opened ones into files and stages, `mask`
takes them out of logs again. Nothing here reads or writes a file. Names are looked up when they
are first used: a plugin that only masks does not pay for the rest.
"""

from typing import TYPE_CHECKING

from pipecd_model.lazy import export_lazily

if TYPE_CHECKING:
    from pipecd_model.secrets.cipher import BadKeyError as BadKeyError
    from pipecd_model.secrets.cipher import CannotOpenError as CannotOpenError
    from pipecd_model.secrets.cipher import KeyPair as KeyPair
    from pipecd_model.secrets.cipher import Opener as Opener
    from pipecd_model.secrets.cipher import Sealer as Sealer
    from pipecd_model.secrets.files import PreparedFiles as PreparedFiles
    from pipecd_model.secrets.files import prepare as prepare
    from pipecd_model.secrets.mask import Masker as Masker
    from pipecd_model.secrets.placeholder import BadPlaceholderError as BadPlaceholderError
    from pipecd_model.secrets.placeholder import open_command as open_command
    from pipecd_model.secrets.placeholder import open_variable as open_variable
    from pipecd_model.secrets.sealing import seal as seal
else:
    __all__, __getattr__ = export_lazily(
        __name__,
        {
            ".cipher": "BadKeyError CannotOpenError KeyPair Opener Sealer",
            ".files": "PreparedFiles prepare",
            ".mask": "Masker",
            ".placeholder": "BadPlaceholderError open_command open_variable",
            ".sealing": "seal",
        },
    )
