#!/usr/bin/env bash
# Unpacks Debian's packages into a folder, without installing them: that needs no root.
#
#   hack/debian.sh FOLDER PACKAGE...
set -euo pipefail

folder=$1
shift
if ! command -v apt-get >/dev/null; then
	echo "there is no apt-get here to get Debian's packages with: $*" >&2
	exit 1
fi
rm -rf "$folder" "$folder.new"
mkdir -p "$folder.new"
cd "$folder.new"
download() { apt-get -qq -o APT::Sandbox::User=root download "$@" >&2; }
download "$@" 2>/dev/null || { apt-get -qq update >&2 && download "$@"; } # a fresh machine has no package lists yet
for package in *.deb; do dpkg-deb -x "$package" .; done
rm ./*.deb
cd "$OLDPWD"
mv "$folder.new" "$folder"
