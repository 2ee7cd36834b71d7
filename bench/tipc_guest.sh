#!/bin/sh
# First process of the guest of bench/tipc: two network namespaces, h1 and h2, joined by a pair of
# veth devices, are two TIPC nodes. Measures, prints `result:` lines, and switches the guest off.
# The kernel's command line sets `bytes_per_frame` (the MTU) and `budget`; bench/tipc_guest.py
# builds the file system around this script.

set -e
export PATH=/bin HOME=/tmp
/bin/busybox --install -s /bin 2>/dev/null || true
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t debugfs debug /sys/kernel/debug
mkdir -p /dev/shm /run/netns
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
stop() {
    cat /tmp/out || true
    poweroff -f
}
trap stop EXIT
for module in $(cat /modules/order); do
    insmod "/modules/$module"
done

# A rank that waits calls sched_yield. With the kernel's own setting the processor may go back to
# the same rank, until it has used as much time as the other one. One second makes it always go to
# the other one.
echo 1000000000 >/sys/kernel/debug/sched/wakeup_granularity_ns

inside() {
    node=$1
    shift
    /tools/ip netns exec "h$node" "$@"
}

/tools/ip netns add h1
/tools/ip netns add h2
/tools/ip link add v1 netns h1 type veth peer name v2 netns h2
for node in 1 2; do
    /tools/ip -n h$node link set v$node mtu "$bytes_per_frame"
    /tools/ip -n h$node link set lo up
    /tools/ip -n h$node addr add 10.78.0.$node/24 dev v$node
    /tools/ip -n h$node link set v$node up
    inside $node /tools/tipc node set addr 1.1.$node
    # TIPC passes messages between namespaces of one kernel without the link. It recognizes the
    # other namespace by word 13 of discovery messages (message user 13). Cleared on arrival, that
    # word makes the other namespace look like another machine.
    /tools/tc -n h$node qdisc add dev v$node clsact
    /tools/tc -n h$node filter add dev v$node ingress protocol 0x88ca u32 \
        match u32 0x1a000000 0x1e000000 at 0 action pedit munge offset 52 u32 set 0
done
for node in 1 2; do
    inside $node /tools/tipc bearer enable media eth device v$node
done
# Discovery messages come at intervals that double up to 60 s. The last short interval ends at 64 s,
# give or take the 2 s to which the kernel rounds long timers. Then the filter is taken out, because
# it costs instructions for each packet. The next discovery message is due at 124 s, when the
# measurement has ended. A guest that sleeps executes nothing, so this costs no time.
sleep 75
for node in 1 2; do
    /tools/tc -n h$node qdisc del dev v$node clsact
done
quiet_from=$(cut -d. -f1 /proc/uptime)

packets() {
    inside 1 /tools/tipc link stat show link 1001001:v1-1001002:v2 |
        sed -n 's/.*TX packets:\([0-9]*\).*/\1/p'
}

ferry() {
    for program in latency bandwidth; do
        FERRY_TRANSPORTS=$1 FERRY_TCP_IF=10.78.0.0/24 BENCH_BUDGET=$budget BENCH_MOST=65536 \
            /prefix/bin/mpiexec -n 2 /rank "/programs/$program" >/tmp/out
        while IFS=, read -r figure _ bytes value; do
            echo "result: $2,$figure,$bytes,$value"
        done </tmp/out
    done
}

sockets() {
    inside 1 /programs/tipc_sockets ask 10.78.0.2 "$1" /run/netns/h2 >/tmp/out
    while IFS=, read -r figure socket bytes value; do
        [ "$socket" = tcp ] && socket=$2
        echo "result: $socket,$figure,$bytes,$value"
    done </tmp/out
}

>/tmp/ready
inside 2 /programs/tipc_sockets serve >/tmp/ready &
until grep -q ready /tmp/ready; do
    sleep 0.1
done

ferry tipc tipc
before=$(packets)
sockets tipc tipc
echo "packets: $(($(packets) - before))"

ferry tcp "tcp card"
sockets tcp "tcp card"
for node in 1 2; do
    inside $node /tools/ethtool -K v$node tso off gro on
done
ferry tcp "tcp kernel"
sockets tcp "tcp kernel"
for node in 1 2; do
    inside $node /tools/ethtool -K v$node tso on gro off
    /tools/ip -n h$node link set v$node gso_max_segs 1
done
ferry tcp "tcp itself"
sockets tcp "tcp itself"

echo "seconds: $(($(cut -d. -f1 /proc/uptime) - quiet_from))"
echo "kernel: $(uname -r)"
echo done
