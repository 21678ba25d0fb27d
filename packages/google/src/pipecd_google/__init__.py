# SPDX-License-Identifier: Apache-2.0
"""What plugins share that speak to Google Cloud: sign-in, calls, retries, refusals.

`sign_in` turns application default credentials, a key file or workload identity federation into
tokens; `api` makes the calls of a REST API and is the one place that makes them again; `errors` has
what may come of one.
"""
