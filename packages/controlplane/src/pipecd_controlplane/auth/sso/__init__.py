# SPDX-License-Identifier: Apache-2.0
"""Single sign-on: through GitHub, or any provider of OpenID Connect."""
