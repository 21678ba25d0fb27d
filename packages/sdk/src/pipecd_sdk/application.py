# SPDX-License-Identifier: Apache-2.0
"""A plugin's part of an application file: what stands under `spec.plugins.<name>`.

Read only when a handler asks for it: most plugins have none, and need no YAML parser in memory.
"""

from typing import Any, TypeVar

from pipecd_model.config import ConfigModel
from pipecd_model.errors import ConfigError
from pipecd_sdk.config import Fault, OptionFaultsError, read_value


class ApplicationConfig(ConfigModel):
    """The options of a plugin in an application file, under `spec.plugins.<name>`.

    Example:
        class SiteConfig(ApplicationConfig):
            folder: str = "."

        class Site(DeploymentPlugin):
            application_config = SiteConfig  # ctx.source.target.options is one
    """


C = TypeVar("C", bound=ConfigModel)


def read_section(cls: type[C], text: bytes, *, plugin: str, file: str = "") -> C:
    """Decodes a plugin's part of an application file; a missing one has all the defaults.

    Raises OptionFaultsError, also when the text is not an application file.
    """
    raw = _section(text, plugin, file or "the application file") if text else {}
    return read_value(cls, raw, path=("spec", "plugins", plugin))[0]


def _section(text: bytes, plugin: str, file: str) -> Any:
    # Here and not above: a plugin without a part in the file does not pay for the parser.
    from pipecd_model.config.document import Document  # noqa: PLC0415
    from pipecd_model.config.schema import find_key  # noqa: PLC0415

    try:
        spec = Document(text, file).application_spec()
    except ConfigError as error:
        raise OptionFaultsError([Fault(path=file, message=str(error))]) from None
    for key in ("plugins", plugin):
        if not isinstance(spec, dict) or (found := find_key(spec, key)) is None:
            return {}
        spec = spec[found]
    return {} if spec is None else spec
