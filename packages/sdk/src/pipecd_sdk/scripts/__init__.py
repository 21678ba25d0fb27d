# SPDX-License-Identifier: Apache-2.0
"""Scripts that outlive the plugin that started them: begun at most once, found again, followed.

For our own plugins, whose stages change the world outside and must not be cut off with the process
that follows them. What is here is not kept from release to release.
"""
