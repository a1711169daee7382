#!/usr/bin/env bash
# What `./dev run` shows.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec build/dev/bin/weft --version
