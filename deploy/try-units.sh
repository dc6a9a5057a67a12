#!/bin/sh
# Runs the steps of docs/cluster.md, and those of docs/relay.md to deploy and remove a relay, with the units of deploy/systemd under a
# separate systemd, and reports each deviation.
#
#   cargo build --release && deploy/try-units.sh target/release/weir
#
# Needs root, systemd-nspawn, debootstrap (Debian: systemd-container debootstrap) and cgroups of version 2; without them it prints the
# reason and stops. It takes two or three minutes, most of them to install a temporary Debian. The program must run on that Debian: one
# that was built with a newer C library does not. Defaults: DEBIAN_SUITE bookworm, DEBIAN_MIRROR that of debootstrap.
set -eu

skip() { echo "skipped: $*"; exit 0; }

[ $# = 1 ] && [ -x "$1" ] || { echo "usage: $0 PROGRAM" >&2; exit 2; }
[ "$(id -u)" = 0 ] || skip "not root; only root can start systemd-nspawn"
for tool in systemd-nspawn debootstrap nsenter unshare; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
grep -qw cgroup2 /proc/filesystems || skip "the kernel does not support cgroups of version 2"

here=$(cd "$(dirname "$0")/.." && pwd)
tmp=$(mktemp -d "${TMPDIR:-/var/tmp}/weir-units.XXXXXX")
bed=

clean() {
    status=$?
    trap - EXIT INT TERM
    # The signal makes nspawn stop its systemd.
    if [ -n "$bed" ] && [ -s "$tmp/nspawn" ]; then
        kill "$(cat "$tmp/nspawn")" 2>/dev/null || true
    fi
    [ -z "$bed" ] || wait "$bed" || true
    rm -rf --one-file-system "$tmp"
    exit "$status"
}
trap clean EXIT
trap 'exit 130' INT TERM

echo "installing Debian in $tmp"
# In a mount namespace, so that an interruption leaves nothing mounted.
unshare --mount debootstrap --variant=minbase --include=dbus,iproute2,openssl,python3,systemd,systemd-sysv \
    "${DEBIAN_SUITE:-bookworm}" "$tmp/root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$tmp/log" 2>&1 || { tail "$tmp/log"; exit 1; }
install -m 0755 "$1" "$tmp/root/usr/local/bin/weir"
mkdir "$tmp/root/opt/weir" "$tmp/bpf"
cp -R "$here/deploy" "$here/python" "$tmp/root/opt/weir"

# Commands inside the container, as root on `node-1`. `node-2` is a network namespace without Weir.
cat >"$tmp/root/opt/weir/inside" <<'INSIDE'
set -eu
cd /opt/weir
mkdir -p certificates
trap 'status=$?; [ $status = 0 ] || { echo "failed; last log lines of the services:"; journalctl -qn 40 --no-pager -u "weir-*"; }' EXIT
passed() { echo "ok: $*"; }
# Waits for a command to succeed, for 10 s at most.
wait_until() {
    for _ in $(seq 100); do
        if "$@"; then return; fi
        sleep 0.1
    done
    echo "timeout after 10 s: $*"
    return 1
}
ctl() {
    weir ctl "$@" --coordinator weir.example:7701 --certificate certificates/ann.pem --key certificates/ann.key \
        --authority certificates/authority.pem
}
present() { ctl hosts --format csv 2>/dev/null | grep -q '^node-1,true'; }
absent() { ! present; }
kill_service() { kill -9 "$(systemctl show -P MainPID "$1")"; }
relay_present() { ctl relays --format csv 2>/dev/null | grep -q '^eu-1,eu,true'; }
active() { [ "$(systemctl is-active "$1")" = active ]; }
restarted() { [ "$(systemctl show -P NRestarts "$1")" -ge "$2" ] && active "$1"; }
has_queues() { tc class show dev eth0 | grep -q '^class htb 7765:100 '; }
has_carried_bytes() { [ "$(tc -s class show dev eth0 classid 7765:100 | sed -n 's/^ Sent \([0-9]*\) .*/\1/p')" -gt 1000000 ]; }
has_no_queues() { ! tc qdisc show dev eth0 | grep -q 7765:; }
has_owner() {
    found=$(stat -c '%U:%G %a' "$1")
    [ "$found" = "$2" ] || { echo "$1: owner and mode are $found; expected $2"; return 1; }
}

printf '127.0.0.1 localhost\n192.0.2.1 weir.example node-1\n192.0.2.2 node-2\n' >/etc/hosts
ip netns add node-2
ip link add eth0 type veth peer name eth0 netns node-2
ip addr add 192.0.2.1/24 dev eth0
ip link set eth0 up
ip -n node-2 addr add 192.0.2.2/24 dev eth0
ip -n node-2 link set eth0 up

install -m 0644 deploy/systemd/weir.conf /usr/lib/sysusers.d/weir.conf
systemd-sysusers weir.conf 2>/dev/null

# The commands of docs/security.md.
cd certificates
authority_certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days "$1" -subj "/CN=$2" -keyout "$2.key" -out "$2.pem" \
        2>/dev/null
}
certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$1" -addext "subjectAltName=$2" \
        -addext "basicConstraints=critical,CA:FALSE" -CA authority.pem -CAkey authority.key -keyout "$1.key" -out "$1.pem" 2>/dev/null
}
authority_certificate 365 authority
certificate coordinator DNS:weir.example,IP:192.0.2.1
certificate node-1 URI:weir://agent/node-1
certificate ads URI:weir://framework/ads
certificate ann URI:weir://operator/ann
certificate eu-1 URI:weir://relay/eu-1

cat >serve.toml <<'TOML'
weir-serve = 1
store = "/var/lib/weir/weir.redb"
policy = "saath"

[listen]
agents = "0.0.0.0:7700"
api = "0.0.0.0:7701"

[tls]
certificate = "coordinator.pem"
key = "coordinator.key"
clients = "authority.pem"

[host]
node-1 = "10Gbit"
node-2 = "10Gbit"

[address]
node-1 = ["192.0.2.1"]
node-2 = ["192.0.2.2"]

[service.ads]
applications = ["sort"]

[overlay]
policy = "siphon"

[overlay.relay]
eu-1 = { region = "eu", address = "192.0.2.1:7710", networks = ["192.0.2.0/24"] }
us-1 = { region = "us", address = "198.51.100.1:7710", networks = ["198.51.100.0/24"] }

[overlay.link]
eu = { us = "1Gbit" }
us = { eu = "1Gbit" }
TOML
install -d -m 0755 /etc/weir
install -m 0644 authority.pem /etc/weir
install -o root -g weir -m 0640 serve.toml coordinator.pem coordinator.key /etc/weir
install -o weir-agent -g root -m 0440 node-1.pem /etc/weir/agent.pem
install -o weir-agent -g root -m 0440 node-1.key /etc/weir/agent.key
install -o weir-relay -g root -m 0440 eu-1.pem /etc/weir/relay.pem
install -o weir-relay -g root -m 0440 eu-1.key /etc/weir/relay.key
cd ..
install -m 0644 deploy/systemd/agent.env deploy/systemd/relay.env /etc/weir
install -m 0644 deploy/systemd/weir-coordinator.service deploy/systemd/weir-agent.service deploy/systemd/weir-relay.service \
    /etc/systemd/system
systemctl daemon-reload
# The container has no man pages.
systemd-analyze verify --man=no weir-coordinator.service weir-agent.service weir-relay.service
passed "systemd-analyze accepts the units"

systemctl -q enable --now weir-coordinator
wait_until ctl hosts >/dev/null 2>&1
absent
passed "the coordinator answers, and no agent is connected"
systemctl -q enable --now weir-agent
wait_until present
active weir-coordinator
active weir-agent
has_owner /var/lib/weir weir:weir\ 700
has_owner /run/weir weir-agent:weir-agent\ 750
has_owner /run/weir/agent.sock weir-agent:weir-agent\ 770
passed "the agent is connected"

systemctl -q enable --now weir-relay
wait_until relay_present
kill_service weir-relay
wait_until restarted weir-relay 1
wait_until relay_present
systemctl restart weir-relay
wait_until relay_present
passed "the relay is connected, also after a kill and a restart"
systemctl -q disable --now weir-relay
[ "$(systemctl show -P Result weir-relay)" = success ]
rm /etc/weir/relay.* /etc/systemd/system/weir-relay.service
systemctl daemon-reload
passed "the relay is removed"

export PYTHONPATH=/opt/weir/python PYTHONDONTWRITEBYTECODE=1
useradd -G weir-agent job
cat >put.py <<'PY'
from weir import Agent, Route, send_flow

route = Route.from_environment(("node-2", 7800))
sent = send_flow(Agent("/run/weir/agent.sock"), "first", 0, route, bytes(1 << 20))
assert sent.unpaced is None, sent.unpaced
PY
cat >first.py <<'PY'
import subprocess
from weir import Coflow, Coordinator, Flow

receiver = """
from weir import FlowReceiver
with FlowReceiver(("0.0.0.0", 7800)) as receiver:
    print("waits", flush=True)
    assert len(receiver.receive("first", 0, timeout=20).read()) == 1 << 20
"""
files = {"certificate": "certificates/ads.pem", "key": "certificates/ads.key", "authority": "certificates/authority.pem"}
coordinator = Coordinator("weir.example:7701", **files)
coflow = Coflow.register(coordinator, "first", [Flow("node-1", "node-2", 1 << 20)], application="sort")
receives = subprocess.Popen(["ip", "netns", "exec", "node-2", "python3", "-c", receiver], stdout=subprocess.PIPE)
assert receives.stdout.readline() == b"waits\n"
send = ["runuser", "-u", "nobody", "--", "python3", "put.py"]
assert subprocess.run(send, stderr=subprocess.DEVNULL).returncode != 0, "a user outside the agent's group handed over a socket"
send[2] = "job"
subprocess.run(send, check=True)
assert receives.wait(20) == 0
coflow.deregister()
PY
python3 first.py
passed "a user in the agent's group can hand over a socket, and another user cannot"

# Queues and marks. The commands that root runs first leave a folder that belongs to root. The application's service starts after the
# agent.
cat >/run/sink.py <<'PY'
import socket, threading

def take(sock):
    while sock.recv(1 << 16):
        pass

server = socket.create_server(("0.0.0.0", 7900))
while True:
    threading.Thread(target=take, args=server.accept()[:1], daemon=True).start()
PY
cat >/run/source.py <<'PY'
import socket, time

while True:
    try:
        with socket.create_connection(("node-2", 7900)) as sock:
            for _ in range(50):
                sock.sendall(bytes(100000))
                time.sleep(0.02)
    except OSError:
        time.sleep(0.1)
PY
python3 - <<'PY'
import http.client, ssl
from weir import Application, Coordinator

context = ssl.create_default_context(cafile="certificates/authority.pem")
context.load_cert_chain("certificates/ann.pem", "certificates/ann.key")
api = http.client.HTTPSConnection("weir.example", 7701, context=context)
api.request("PUT", "/v1/sensitivity", 'version = 1\n[[application]]\nname = "Sort"\ncoefficients = [1.13, -0.13]\n')
assert api.getresponse().status == 204
files = {"certificate": "certificates/ads.pem", "key": "certificates/ads.key", "authority": "certificates/authority.pem"}
Application.register(Coordinator("weir.example:7701", **files), "sort", model="Sort")
PY
systemctl stop weir-agent
rm -rf /run/weir/agent-queues
weir agent queues --interface eth0 --rate 10Gbit --weights 1:3 >/dev/null
weir agent cleanup >/dev/null
more="--interface eth0"
if [ -e /sys/fs/bpf/maps.debug ]; then
    more="$more --application sort=system.slice/sort.service"
else
    echo "skipped: marks, which need a BPF file system"
fi
sed -i "s#^WEIR_MORE=.*#WEIR_MORE=$more#" /etc/weir/agent.env
systemctl start weir-agent
sleep 6
systemd-run -q --unit=sink -p NetworkNamespacePath=/run/netns/node-2 python3 /run/sink.py
systemd-run -q --unit=sort python3 /run/source.py
wait_until present
if [ "$more" != "--interface eth0" ]; then
    wait_until has_queues
    wait_until has_carried_bytes
    has_owner /sys/fs/bpf/weir weir-agent:weir-agent\ 700
    passed "an application's packets use its queue"
fi

before=$(systemctl show -P NRestarts weir-agent)
kill_service weir-agent
wait_until restarted weir-agent $((before + 1))
kill_service weir-coordinator
wait_until restarted weir-coordinator 1
wait_until present
for i in $(seq 2 8); do
    kill_service weir-agent
    wait_until restarted weir-agent $((before + i))
done
wait_until present
passed "systemd restarts the services after each kill"

systemctl stop weir-agent
[ "$(systemctl show -P Result weir-agent)" = success ]
wait_until has_no_queues
wait_until absent
passed "the agent stops, and restores the previous queue"
systemctl stop weir-coordinator
[ "$(systemctl show -P Result weir-coordinator)" = success ]
passed "the coordinator stops without a timeout"

# Removal while everything runs.
systemctl start weir-coordinator weir-agent
wait_until present
[ "$more" = "--interface eth0" ] || wait_until has_queues
systemctl -q disable --now weir-agent
weir agent cleanup >/dev/null
rm -r /run/weir /etc/weir/agent.* /etc/systemd/system/weir-agent.service
systemctl -q disable --now weir-coordinator
rm -r /var/lib/weir /etc/weir /etc/systemd/system/weir-coordinator.service /usr/lib/sysusers.d/weir.conf
rm -rf /sys/fs/bpf/weir
systemctl daemon-reload
userdel job
userdel weir
userdel weir-agent
userdel weir-relay
has_no_queues
left=$(
    systemctl list-units --all --plain --no-legend 'weir*'
    find /etc /run /sys/fs/bpf /usr/lib /var/lib -name '*weir*'
    grep weir /etc/passwd /etc/group || true
)
[ -z "$left" ] || { echo "$left"; exit 1; }
passed "uninstallation removes all files and users"
INSIDE

# The container has its own cgroups of version 2, even if version 1 is mounted, and a BPF file system with systemd's mode. The container
# has all privileges, so only the units restrict the services.
SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 unshare --mount --propagation private sh -eu -c '
    [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup
    bpf=
    if mount -t bpf -o mode=0700 bpf "$1/bpf"; then bpf="--bind=$1/bpf:/sys/fs/bpf"; fi
    group=/sys/fs/cgroup/${1##*/}
    mkdir "$group"
    (
        sh -c "echo \$PPID" >"$group/cgroup.procs"
        exec systemd-nspawn --quiet --boot --register=no --keep-unit --directory="$1/root" --machine=node-1 \
            --private-network --resolv-conf=off --timezone=off --link-journal=no --capability=all \
            --system-call-filter="bpf @keyring" --console=read-only $bpf </dev/null >"$1/log" 2>&1
    ) &
    echo $! >"$1/nspawn"
    wait $! || true
    find "$group" -depth -type d -exec rmdir {} +
' sh "$tmp" &
bed=$!

inside() {
    nsenter -t "$leader" --mount --uts --ipc --net --pid --cgroup --root --wd env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
}
leader=
for _ in $(seq 300); do
    kill -0 "$bed" 2>/dev/null || { echo "systemd-nspawn has exited:"; cat "$tmp/log"; exit 1; }
    [ -n "$leader" ] || [ ! -s "$tmp/nspawn" ] || leader=$(pgrep -P "$(cat "$tmp/nspawn")" | head -n 1)
    state=$([ -z "$leader" ] || inside systemctl is-system-running 2>/dev/null || true)
    case $state in running | degraded) break ;; esac
    sleep 0.2
done
case $state in
    running | degraded) inside systemctl --version | head -n 1 ;;
    *) echo "systemd has not started after a minute:"; cat "$tmp/log"; exit 1 ;;
esac
inside sh /opt/weir/inside
echo "all steps of docs/cluster.md and of the relay work"
