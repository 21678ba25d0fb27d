# SPDX-License-Identifier: Apache-2.0
"""The program at the front of a one-file plugin, which imports nothing of ours."""

from pathlib import Path

from pipecd_pipectl.pluginfile import boot
from pipecd_wire.headers import PLUGIN_CACHE_VARIABLE


def test_it_reads_the_folder_of_the_cache_from_the_variable_that_all_others_know() -> None:
    assert f'os.environ.get("{PLUGIN_CACHE_VARIABLE}")' in Path(boot.__file__).read_text()
