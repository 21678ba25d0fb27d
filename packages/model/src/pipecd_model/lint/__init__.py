# SPDX-License-Identifier: Apache-2.0
"""Everything that can be said about a file before it is used: what loading says, and more.

Here unknown keys are faults, stages are judged by what plugins say of themselves, and what a file
refers to is looked for. Nothing is read here: the caller gives the text and a view of
the files around it.
"""

from pipecd_model.lint.context import FileView, LintContext
from pipecd_model.lint.lint import Problems, lint

__all__ = ["FileView", "LintContext", "Problems", "lint"]
