#!/usr/bin/env bash
# Builds the commands that a module of hack/tools/ pins with its `tool` lines
# into one folder, stamped with the pinned version:
#
#   hack/build-tools.sh kubernetes bin/k8s
#   hack/build-tools.sh kubernetes bin/k8s kubelet # that one only; without its name it is left out
#
# It is for make, which says in GOFLAGS, CGO_ENABLED and GOGC how everything is compiled.
# The Go build cache makes every build after the first one a matter of seconds.
set -euo pipefail

name=$1 only=${3-}
out=$(mkdir -p "$2" && cd "$2" && pwd)
cd "$(dirname "$0")/tools/$name"

mapfile -t packages < <(go list -f '{{.ImportPath}}' tool | if [[ $only ]]; then grep "/$only\$"; else grep -v '/kubelet$'; fi)
version=$(go list -f '{{.Module.Version}}' "${packages[0]}") # none of a program of ours

ldflags="-s -w"
tags=
case $name in
kubernetes | kubernetes-*)
	IFS=. read -r major minor _ <<<"${version#v}"
	for pair in gitVersion="$version" gitMajor="$major" gitMinor="$minor" gitTreeState=clean; do
		ldflags+=" -X k8s.io/component-base/version.$pair"
	done
	;;
kwok) ldflags+=" -X sigs.k8s.io/kwok/pkg/consts.Version=$version" ;;
golangci-lint) ldflags+=" -X main.version=${version#v}" ;;
containerd)
	# Without the snapshotters that need C libraries.
	tags=no_btrfs,no_devmapper,no_zfs
	ldflags+=" -X github.com/containerd/containerd/v2/version.Version=$version"
	;;
runc)
	# The kubelet wants every sandbox confined by seccomp.
	tags=seccomp
	PKG_CONFIG=$(../../libseccomp.sh "$out/libseccomp")
	# Go's build cache does not know what pkg-config has printed, and would link with the folder of another clone.
	CGO_CFLAGS="-g -O2 $("$PKG_CONFIG" --cflags libseccomp)"
	CGO_LDFLAGS=$("$PKG_CONFIG" --libs libseccomp)
	export PKG_CONFIG CGO_CFLAGS CGO_LDFLAGS CGO_ENABLED=1
	;;
prometheus)
	# Of the ways to discover targets only the one that is documented: the SDKs of clouds are half of the build.
	tags=remove_all_sd,enable_kubernetes_sd
	ldflags+=" -X github.com/prometheus/common/version.Version=${version#v}"
	;;
prometheus-operator) ldflags+=" -X github.com/prometheus/common/version.Version=${version#v}" ;;
vpa)
	# The admission controller would listen on all addresses, and has no flag for that: its copy listens on 127.0.0.1.
	loopback=$(mktemp -d)
	trap 'rm -rf "$loopback"' EXIT
	cp --no-preserve=mode "$(go list -f '{{.Dir}}' k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller)"/{main,config,certs}.go "$loopback"
	grep -q 'Sprintf(":%d"' "$loopback/main.go"
	sed -i 's/Sprintf(":%d"/Sprintf("127.0.0.1:%d"/' "$loopback/main.go"
	;;
esac

# build passes on what go build says. -v names each package as it is compiled: they are counted, to show that it moves.
build() {
	go build -v -tags "$tags" -ldflags "$ldflags" "$@" 2>&1 |
		awk -v name="$name" '
			/^[^ :]+$/ { if (++n % 100 == 0) { printf "  %s: %d packages compiled\n", name, n; fflush() } next }
			{ print; fflush() }'
}

echo "building $name${only:+ ($only)} $version into ${out/#$OLDPWD\//} (the first build compiles every package once)"
case $name in
# Their packages are called server/v3, v2, operator, and helm as that of the newest.
etcd | kube-state-metrics | prometheus-operator | helm-3) build -o "$out/$name" "${packages[@]}" ;;
vpa)
	build -o "$out/admission-controller" "$loopback"/{main,config,certs}.go
	mapfile -t packages < <(printf '%s\n' "${packages[@]}" | grep -v '/admission-controller$')
	build -o "$out/" "${packages[@]}"
	;;
*) build -o "$out/" "${packages[@]}" ;; # all at once: one is linked while the next one is compiled
esac
echo "built $name"
