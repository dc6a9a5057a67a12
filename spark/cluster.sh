# Starts a Spark cluster on this machine, for spark/test-cluster and the commands in regions. Source it.
#
# With root, each worker is a host of its own: a network namespace behind a router. Without root, workers have loopback addresses.

spark_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/weir-spark.XXXXXX")
prefix=weirspark$$
hosts=0
children=()
declare -A worker_cores=()
# Programs that are killed leave their temporary files behind.
mkdir "$scratch/tmp"
java_options=(-XX:-UsePerfData "-Djava.io.tmpdir=$scratch/tmp")
# What Spark needs to run outside its own scripts on Java 17.
java_options+=(-XX:+IgnoreUnrecognizedVMOptions)
for package in java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent \
    java.util.concurrent.atomic sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar; do
    java_options+=("--add-opens=java.base/$package=ALL-UNNAMED")
done

has_namespaces() {
    [ "$(id -u)" = 0 ] && [ "${WEIR_SPARK_LOOPBACK:-}" != 1 ] && command -v ip >/dev/null && ip netns list >/dev/null 2>&1
}

# Prints why a cluster cannot run here, or nothing.
missing_tools() {
    for tool in java mvn; do
        command -v "$tool" >/dev/null || { echo "$tool is not installed"; return; }
    done
}

# Builds and tests the jars. Copies them: the next build must not change what a cluster runs.
build_jars() { # [OPTION-OF-MAVEN...]
    (cd "$spark_dir" && mvn -q -B -Dstyle.color=never "$@" package)
    cp "$spark_dir/target/weir-spark.jar" "$spark_dir/target/weir-spark-tests.jar" "$scratch/"
    weir_jar=$scratch/weir-spark.jar
    test_jar=$scratch/weir-spark-tests.jar
}

# Makes a SPARK_HOME of a version's jars, and those of the project in a directory.
use_spark() { # VERSION [DIRECTORY]
    local project=${2:-$spark_dir}
    scala=2.12
    case $1 in 4.*) scala=2.13 ;; esac
    spark_home=$project/target/spark-$1
    [ -d "$spark_home/jars" ] && return
    (cd "$project" && mvn -q -B -Dstyle.color=never dependency:build-classpath -DincludeScope=provided -Dmdep.outputFile="$scratch/classpath" \
        -Dspark.version="$1" -Dscala.binary.version="$scala") || return
    mkdir -p "$spark_home/jars.new"
    tr ':' '\n' < "$scratch/classpath" | xargs -I{} ln -sf {} "$spark_home/jars.new/"
    mv "$spark_home/jars.new" "$spark_home/jars"
}

# Creates hosts 1 to N; `host_address` and `on_host` refer to them by number.
create_hosts() { # N
    hosts=$1
    has_namespaces || return 0
    local router=$prefix-r
    ip netns add "$router"
    ip -n "$router" link set lo up
    ip netns exec "$router" sysctl -qw net.ipv4.ip_forward=1
    for host in $(seq "$hosts"); do
        ip netns add "$prefix-$host"
        ip link add "h$host" netns "$router" type veth peer name eth0 netns "$prefix-$host"
        ip -n "$router" addr add "10.77.$host.1/24" dev "h$host"
        ip -n "$router" link set "h$host" up
        ip -n "$prefix-$host" addr add "10.77.$host.2/24" dev eth0
        ip -n "$prefix-$host" link set lo up
        ip -n "$prefix-$host" link set eth0 up
        ip -n "$prefix-$host" route add default via "10.77.$host.1"
    done
}

host_address() { # HOST
    if has_namespaces; then echo "10.77.$1.2"; else echo "127.0.0.$((1 + $1))"; fi
}

# Sets `enter` to the start of a command that runs a program on a host.
set_enter() { # HOST
    enter=(env "SPARK_LOCAL_IP=$(host_address "$1")")
    ! has_namespaces || enter=(ip netns exec "$prefix-$1" "${enter[@]}")
}

on_host() { # HOST COMMAND...
    set_enter "$1"
    "${enter[@]}" "${@:2}"
}

# Starts a program on a host; its output goes to a file in the scratch directory. Not by a function in the background: its shell would
# end with a signal, and leave the program behind.
start_on_host() { # NAME HOST COMMAND...
    set_enter "$2"
    "${enter[@]}" "${@:3}" > "$scratch/$1.log" 2>&1 &
    children+=($!)
}

wait_for_line() { # NAME PATTERN
    for _ in $(seq 300); do
        grep -qE "$2" "$scratch/$1.log" 2>/dev/null && return
        sleep 0.2
    done
    echo "$1 did not start:" >&2
    tail -20 "$scratch/$1.log" >&2
    return 1
}

# Starts a master on host 1, and a worker on each host, each in its region. Sets `master`. With a name, several clusters can run.
# `worker_cores` overrides the cores of hosts by number, `master_host` the host of the master.
start_cluster() { # CORES OPTIONS-OF-WORKERS REGION...
    local cores=$1 options=$2 host=0 name=${cluster_name:-} port=${master_port:-7077}
    shift 2
    start_on_host "${name}master" "${master_host:-1}" env SPARK_HOME="$spark_home" java "${java_options[@]}" -Xmx256m -cp "$spark_home/jars/*" \
        org.apache.spark.deploy.master.Master --host "$(host_address "${master_host:-1}")" --port "$port" --webui-port 0
    wait_for_line "${name}master" 'Starting Spark master at'
    master=spark://$(host_address "${master_host:-1}"):$port
    for region; do
        host=$((host + 1))
        start_on_host "${name}worker-$host" "$host" env SPARK_HOME="$spark_home" SPARK_SCALA_VERSION="$scala" WEIR_REGION="$region" WEIR_RELAY="${relays[$host]:-}" \
            java "${java_options[@]}" $options -Xmx256m -cp "$spark_home/jars/*" org.apache.spark.deploy.worker.Worker \
            --host "$(host_address "$host")" --cores "${worker_cores[$host]:-$cores}" --memory "${worker_memory:-1g}" --work-dir "$scratch/${name}work-$host" \
            --webui-port 0 "$master"
    done
    for host in $(seq $#); do
        wait_for_line "${name}worker-$host" 'Successfully registered with master'
    done
}

stop_children() {
    [ "${#children[@]}" = 0 ] || kill "${children[@]}" 2>/dev/null || true
    wait "${children[@]}" 2>/dev/null || true
    children=()
}

remove_all() {
    stop_children
    if has_namespaces && [ "$hosts" -gt 0 ]; then
        for host in $(seq "$hosts") r; do
            ip netns del "$prefix-$host" 2>/dev/null || true
        done
    fi
    rm -rf "$scratch"
}
