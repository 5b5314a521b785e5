#!/usr/bin/env bash
# Finds libseccomp for the build of runc, and prints the pkg-config command that
# knows it. Where it is not installed, Debian's package is unpacked, not
# installed, into the given folder; this needs neither root nor pkg-config.
set -euo pipefail

if pkg-config --exists libseccomp 2>/dev/null; then
	echo pkg-config
	exit
fi
"${0%/*}/debian.sh" "$1" libseccomp-dev || {
	echo "runc needs libseccomp's headers and pkg-config: install libseccomp-dev, or what your distribution calls it" >&2
	exit 1
}
dir=$(realpath "$1")
cd "$dir"
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
