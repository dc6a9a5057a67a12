#!/bin/sh
# A coordinator and agents on a bed: live.sh [WEIR]
#
# Two services send from one host over a link of 100 Mbit. A third service with the same weight is idle; the first gets three quarters of
# the unused bandwidth. Programs are unmodified: bash writes to /dev/tcp, and python3 receives. The script needs root, openssl and
# python3. It removes everything that it created: a temporary folder, namespaces and two control groups.
set -eu

fail() {
    echo "live.sh: $*" >&2
    exit 2
}
command -v "${1:-weir}" > /dev/null || fail "program \`${1:-weir}\` was not found; help: pass the path of weir, such as live.sh target/release/weir"
for needed in openssl python3 bash nsenter tc; do
    command -v $needed > /dev/null || fail "program \`$needed\` was not found; help: install it"
done
weir=$(realpath "$(command -v "${1:-weir}")")
bed=live$$
groups=$(awk '/ - cgroup2 / { print $5; exit }' /proc/self/mountinfo)/$bed
place=$(mktemp -d)
cd "$place"

finish() {
    status=$?
    # A second signal does not interrupt the cleanup.
    trap '' INT TERM HUP
    # After an error, show the ends of the logs.
    [ $status = 0 ] || [ $status = 130 ] || tail -n 5 ./*.log >&2 2> /dev/null || :
    for process in web batch agent coordinator; do
        [ ! -f $process.pid ] || kill "$(cat $process.pid)" 2> /dev/null || :
    done
    for group in web batch; do
        [ ! -d "$groups-$group" ] || echo 1 > "$groups-$group/cgroup.kill"
    done
    { wait; } 2> /dev/null || :
    "$weir" testbed down --name "$bed" > /dev/null || :
    rmdir "$groups-web" "$groups-batch" 2> /dev/null || :
    rm -rf "$place"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# Runs a command in a host. Unlike `ip netns exec`, nsenter does not hide control groups.
host() {
    name=$1
    shift
    nsenter --net=/run/netns/weir-$bed-$name "$@"
}

# Runs a command in a host in the background, with its process id in a file. The command ignores SIGHUP.
start() {
    part=$1
    name=$2
    shift 2
    # Without `exec`, a second shell would print that the command was terminated.
    exec nsenter --net=/run/netns/weir-$bed-$name sh -c 'trap "" HUP; echo $$ > "$0.pid"; exec "$@" 2> "$0.log"' "$part" "$@" &
}

# Four hosts at one switch, with addresses from 10.0.0.1 on. The coordinator runs on the last one.
cat > fabric.toml << END
weir-fabric = 1
kind = "big-switch"
hosts = 4
rate = "100Mbit"
END
"$weir" testbed up fabric.toml --name "$bed" > /dev/null

# Connections cross the bed's network, not loopback, so they need certificates.
certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
        -addext "subjectAltName=$2" -addext "basicConstraints=critical,CA:FALSE" \
        -CA authority.pem -CAkey authority.key -keyout "$1.key" -out "$1.pem" 2> /dev/null
}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=weir" \
    -keyout authority.key -out authority.pem 2> /dev/null
certificate coordinator IP:10.0.0.4
certificate h0 URI:weir://agent/h0
certificate ann URI:weir://operator/ann

cat > serve.toml << END
weir-serve = 1
store = "weir.redb"
policy = "saath"
queues = "services"
allocator = true
topology = "fabric.toml"

[listen]
agents = "10.0.0.4:7700"
api = "10.0.0.4:7701"

[tls]
certificate = "coordinator.pem"
key = "coordinator.key"
clients = "authority.pem"

[address]
h0 = ["10.0.0.1"]
h1 = ["10.0.0.2"]
h2 = ["10.0.0.3"]

[service.web]
excess = 3

[service.batch]
excess = 1

[service.idle]
END
start coordinator h3 "$weir" serve --config serve.toml

ctl() {
    host h3 "$weir" ctl "$@" --coordinator 10.0.0.4:7701 --certificate ann.pem --key ann.key --authority authority.pem
}
# Waits for a command to succeed, for 30 s at most.
await() {
    for _ in $(seq 60); do
        "$@" > /dev/null 2>&1 && return
        sleep 0.5
    done
}
await ctl hosts
for application in web batch; do
    ctl application register $application --service $application
done

# Delete the bed's own queue, which gives the link its rate: the agent does not replace it. The agent's queues have the same rate.
host h0 tc qdisc del dev eth0 root
mkdir "$groups-web" "$groups-batch"
start agent h0 "$weir" agent run --rate 100Mbit --interface eth0 --socket "$place/agent.sock" \
    --application "web=$groups-web" --application "batch=$groups-batch" --keep-queues 0s \
    --coordinator 10.0.0.4:7700 --certificate h0.pem --key h0.key --authority authority.pem
has_queues() {
    host h0 tc class show dev eth0 | grep -q 7765:102
}
await has_queues

# One program of each service, each to another host.
receive='
import socket, sys
stream, _ = socket.create_server((sys.argv[1], 9000)).accept()
while stream.recv(1 << 16): pass
'
# Whether a host listens at port 9000: 2328 in hexadecimal, state 0A.
listens() {
    host "$1" grep -q ':2328 00000000:0000 0A' /proc/net/tcp
}
send() {
    start "$1" "$2" python3 -c "$receive" "$3"
    await listens "$2"
    sh -c "echo 0 > $groups-$1/cgroup.procs; exec nsenter --net=/run/netns/weir-$bed-h0 bash -c 'exec cat /dev/zero > /dev/tcp/$3/9000'" 2> /dev/null &
}
arrived() {
    host "$1" awk '/eth0:/ { print $2 }' /proc/net/dev
}
send web h1 10.0.0.2
send batch h2 10.0.0.3
# Whether both applications have a limit.
limited() {
    [ "$(ctl observed --format csv | grep -c ',[0-9][0-9]*$')" = 2 ]
}
await limited
sleep 3
web=$(arrived h1) batch=$(arrived h2)
sleep 2
web=$((($(arrived h1) - web) * 8 / 2000000)) batch=$((($(arrived h2) - batch) * 8 / 2000000))

echo "The agent of h0 is connected to the coordinator, and has applied the last orders:"
ctl hosts
echo
echo "Each of three services has a weighted share of a third of the link. Unused bandwidth is shared by excess weight:"
ctl services
echo
echo "Connections that the agent observes, and their limits:"
ctl observed
echo
echo "Of 100 Mbit/s, web gets $web and batch $batch. 98 are divided, so 57.2 and 40.8 are expected: a third each, and three quarters of the idle service's third"
echo "for web. Without excess weights, each would get half."
