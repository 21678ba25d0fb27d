# SPDX-License-Identifier: Apache-2.0
"""The checks of `pipectl doctor`: each module looks at one side, and answers with rows."""
