# Starts five regions with a relay, a coordinator and Spark clusters, for spark/demo and spark/measure. Source it after cluster.sh.
# Needs root, Java, Maven and OpenSSL.
#
# Host 0 is the driver's, in the first region; hosts 1 to 5 are the workers of the regions. Each region's relays are at its gateway.

project_dir=$(cd "$spark_dir/.." && pwd)
# Where the Makefile builds.
profile=${PROFILE:-quick}
[ "$profile" != dev ] || profile=debug
build_dir=$(realpath -m "${CARGO_TARGET_DIR:-$project_dir/target}")/$profile
weir=${WEIR_BINARY:-$build_dir/weir}
weir_lab=${WEIR_LAB_BINARY:-$build_dir/weir-lab}
wide_area=$project_dir/examples/wide-area/table-1.toml
distances=$project_dir/examples/wide-area/table-1-delays.csv
# The order of the wide area's file: addresses follow from it.
regions=(oregon carolina tokyo belgium taiwan)
# Multiplies the bandwidths of the wide area.
scale=${WEIR_SCALE:-0.1}
# The relays of each region.
relay_count=${WEIR_RELAYS:-1}
version=${WEIR_SPARK_VERSION:-3.5.5}
network=spark$$
lab=
main=
declare -A relays=()

say() {
    echo "$(date +%T) $*" >&2
}

# Prints why the regions cannot run here, or nothing.
missing_for_regions() {
    local reason
    reason=$(missing_tools)
    [ -n "$reason" ] || has_namespaces || reason='network namespaces need root'
    [ -n "$reason" ] || command -v openssl >/dev/null || reason='openssl is not installed'
    for program in "$weir" "$weir_lab"; do
        [ -n "$reason" ] || [ -x "$program" ] || reason="$program does not exist: run \`cargo build --profile quick -p weir-cli -p weir-lab\`"
    done
    echo "$reason"
}

node_of() { # HOST
    if [ "$1" = 0 ]; then echo "${regions[0]}-2"; else echo "${regions[$1 - 1]}-1"; fi
}

host_address() { # HOST
    if [ "$1" = 0 ]; then echo 10.80.1.2; else echo "10.80.$1.1"; fi
}

set_enter() { # HOST
    enter=(ip netns exec "wlab-$network-$(node_of "$1")" env "SPARK_LOCAL_IP=$(host_address "$1")")
}

start_regions() {
    "$weir_lab" regions "$wide_area" --distances "$distances" --scale "$scale" --name "$network" > "$scratch/regions.log" 2>&1 &
    lab=$!
    wait_for_line regions '^ready'
    for host in $(seq "${#regions[@]}"); do
        relays[$host]=$(for number in $(seq "$relay_count"); do echo "10.80.$host.254:$((7701 + 10 * number))"; done | paste -sd ,)
    done
}

# Makes the certificates of the coordinator, its clients and the relays.
make_certificates() {
    certificates=$scratch/certificates
    mkdir "$certificates"
    new_certificate() { # NAME SUBJECT-ALTERNATIVE-NAME
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$1" -addext "subjectAltName=$2" \
            -addext "basicConstraints=critical,CA:FALSE" -CA "$certificates/authority.pem" -CAkey "$certificates/authority.key" \
            -keyout "$certificates/$1.key" -out "$certificates/$1.pem" 2>> "$scratch/openssl.log"
    }
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=weir" -keyout "$certificates/authority.key" \
        -out "$certificates/authority.pem" 2>> "$scratch/openssl.log"
    new_certificate coordinator "IP:$(host_address 0)"
    new_certificate operator URI:weir://operator/lab
    new_certificate framework URI:weir://framework/default
    for region in "${regions[@]}"; do
        for number in $(seq "$relay_count"); do
            new_certificate "$region-$number" "URI:weir://relay/$region-$number,DNS:$region-$number"
        done
    done
}

# Runs measurements in new regions: the Spark clusters start here, the overlay and the applications in io.weir.spark.live.Main.
run_in_regions() { # MODE ARGUMENTS...
    trap remove_regions EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    local reason
    reason=$(missing_for_regions)
    if [ -n "$reason" ]; then
        echo "skipped: the regions cannot run: $reason" >&2
        exit 0
    fi
    say "building the plugin"
    build_jars -DskipTests
    use_spark "$version" "$spark_dir/live"
    build_live
    make_certificates
    say "starting the regions and two Spark clusters"
    start_regions
    # Two tasks for each worker of the paper's section 5.2.
    worker_cores=([1]=8 [2]=16 [3]=4 [4]=6 [5]=4)
    worker_memory=10g master_host=0
    local masters=()
    for name in plain weir; do
        cluster_name=$name- master_port=$((7077 + ${#masters[@]}))
        start_cluster 0 "-XX:+UseSerialGC -XX:TieredStopAtLevel=1" "${regions[@]}"
        masters+=("$master")
    done
    cat > "$scratch/lab.properties" <<END
weir=$weir
scratch=$scratch
certificates=$certificates
namespaces=wlab-$network-
lab=$lab
regions=${regions[*]}
tasks=8 16 4 6 4
wide.area=$wide_area
scale=$scale
relays=$relay_count
driver.host=$(host_address 0)
master.plain=${masters[0]}
master.weir=${masters[1]}
spark.home=$spark_home
weir.jar=$weir_jar
live.jar=$live_jar
java.options=${java_options[*]}
END
    # In the background: a signal then ends it before the regions.
    java "${java_options[@]}" -Xmx256m -cp "$live_jar" io.weir.spark.live.Main "$scratch/lab.properties" "$@" &
    main=$!
    wait "$main"
}

build_live() {
    (cd "$spark_dir/live" && mvn -q -B -Dstyle.color=never -Dspark.version="$version" package)
    live_jar=$scratch/weir-spark-live.jar
    cp "$spark_dir/live/target/weir-spark-live.jar" "$live_jar"
}

remove_regions() {
    # Ctrl-C ends a demo, but not its cleanup.
    trap '' HUP INT TERM
    [ -z "$main" ] || { kill "$main" && wait "$main"; } 2>/dev/null || true
    stop_children
    # Ends all programs in the regions, too.
    [ -z "$lab" ] || { kill -TERM "$lab" && wait "$lab"; } 2>/dev/null || true
    rm -rf "$scratch/tmp"
    [ -z "${WEIR_SPARK_KEEP:-}" ] || cp -r "$scratch" "$WEIR_SPARK_KEEP"
    rm -rf "$scratch"
}
