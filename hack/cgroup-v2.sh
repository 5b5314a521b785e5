#!/usr/bin/env bash
# Runs a program where there is only cgroup v2, on a machine that has v1: under a
# kernel of its own. User Mode Linux is one that is an ordinary process.
#
#   go test -tags e2e -exec hack/cgroup-v2.sh -run TestEdits ./test/e2e
#
# The program sees the machine's files; what it writes is gone with the kernel, which
# has one processor, no cpuset, and takes several times as long. Debian's packages
# of the kernel, and of what loads its modules, are unpacked, not installed, into bin/uml/.
set -euo pipefail

if [[ $$ != 1 && -z ${CGROUP_V2-} ]]; then
	[[ $(stat --file-system --format=%T /sys/fs/cgroup) == cgroup2fs ]] && exec "$@"
	# Everything ends with the process that has started this.
	CGROUP_V2=1 exec setpriv --pdeathsig TERM "$0" "$@"
fi

if [[ $$ != 1 ]]; then
	self=$(realpath "$0")
	uml=${self%/hack/*}/bin/uml
	[[ -d $uml ]] || "${self%/*}/debian.sh" "$uml" user-mode-linux kmod
	cc -shared -fPIC -O2 -o "$uml/xstate.so" "${self%/*}/uml-xstate.c" -ldl
	share=$(mktemp -d)
	trap 'rm -rf "$share"' EXIT
	{ export -p; printf 'export TMPDIR=/dev/shm\ncd %q\n' "$PWD"; printf '%q ' "$@"; } >"$share/program"
	# The kernel's memory is a file, which has no business on a disk. On more than one of
	# the machine's processors it would be three times slower.
	TMPDIR=/dev/shm LD_PRELOAD="$uml/xstate.so" taskset --cpu-list 0 setpriv --pdeathsig KILL "$uml/usr/bin/linux.uml" mem=8G \
		rootfstype=hostfs rootflags=/ ro quiet loglevel=1 con=null con0=null,fd:1 init="$self" uml="$uml" share="$share" </dev/null
	exit "$(cat "$share/code" 2>/dev/null || echo 1)"
fi

# From here on as the first process of that kernel.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
trap 'echo o >/proc/sysrq-trigger; sleep 60' EXIT
mount -t proc proc /proc
for module in overlay crc-ccitt ipv6 llc stp bridge veth; do
	(exec -a insmod "$uml/bin/kmod" "$(find "$uml/usr/lib/uml/modules" -name "$module.ko")")
done

# The machine's files, and over them, in memory, what is written.
mount -t tmpfs over /mnt
mkdir /mnt/{upper,work,root}
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
cd /mnt/root
mount -t hostfs -o "$share" share ".$share"
pivot_root . mnt
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
echo +cpu +memory +pids >/sys/fs/cgroup/cgroup.subtree_control
ip link set lo up
# The kubelet wants to know how fast the processor is.
mount -t tmpfs cpu /sys/devices/system/cpu/cpu0
mkdir -p /sys/devices/system/cpu/cpu0/{cpufreq,topology}
echo 1000000 >/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq
echo 0 | tee /sys/devices/system/cpu/cpu0/topology/{core_id,physical_package_id} >/dev/null

bash "$share/program" && code=0 || code=$?
echo "$code" >"$share/code"
