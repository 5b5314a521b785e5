#!/usr/bin/env bash
# Finds libseccomp for the build of runc, and prints the pkg-config command that
# knows it. Where it is not installed, Debian's package is unpacked, not
# installed, into the given folder; this needs neither root nor pkg-config.
set -euo pipefail

if pkg-config --exists libseccomp 2>/dev/null; then
	echo pkg-config
	exit
fi
if ! command -v apt-get >/dev/null; then
	echo "runc needs libseccomp's headers and pkg-config: install libseccomp-dev, or what your distribution calls it" >&2
	exit 1
fi

rm -rf "$1"
dir=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$dir"
download() { apt-get -qq -o APT::Sandbox::User=root download libseccomp-dev >&2; }
download 2>/dev/null || { apt-get -qq update >&2 && download; } # a fresh machine has no package lists yet
dpkg-deb -x libseccomp-dev_*.deb .
library=$(find usr/lib -name libseccomp.a)
rm -f "${library%.a}.so" # it points to the other package: link the static one

cat >pkg-config <<END
#!/bin/sh
case " \$* " in
*" --cflags "*) echo "-I$dir/usr/include" ;;
*" --libs "*) echo "-L$dir/$(dirname "$library") -lseccomp" ;;
esac
END
chmod +x pkg-config
echo "$dir/pkg-config"
