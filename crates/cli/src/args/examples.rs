//! Adds three or more examples to the help of each command.

use clap::Command;

use super::MISSING_COMMANDS;

/// Adds the examples of a command with this path, and of its subcommands, to the end of their help, except for those of commands that
/// this build lacks.
pub fn add_examples(command: Command, path: &str) -> Command {
    let command = command.mut_subcommands(|sub| {
        let path = format!("{path} {}", sub.get_name());
        add_examples(sub, &path)
    });
    let Some((_, lines)) = EXAMPLES.iter().find(|(name, _)| *name == path) else { return command };
    let missing = MISSING_COMMANDS.iter().flat_map(|(_, commands)| *commands);
    let lines: Vec<&str> = lines
        .iter()
        .filter(|line| !missing.clone().any(|command| line.contains(&format!("weir {command}"))))
        .copied()
        .collect();
    let examples = format!("Examples:\n  {}", lines.join("\n  "));
    let help = command.get_after_help().map_or(examples.clone(), |help| format!("{help}\n\n{examples}"));
    command.after_help(help)
}

/// By command: examples. The command `weir` has its own, which only `--help` shows.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "weir sim",
        &[
            "weir sim trace.txt --policy saath",
            "weir sim trace.txt --policy saath:start=1MB:d=4 --interval 0 --format json",
            "weir sim trace.txt --policy varys --per-coflow ccts.csv --per-link links.csv",
        ],
    ),
    (
        "weir compare",
        &[
            "weir compare trace.txt",
            "weir compare trace.txt --policies saath,aalo,fair --baseline aalo",
            "weir compare trace.txt --policies saath,saath:lcof=off --format json --out ablation.json",
            "weir compare trace.txt --fabric fabric.toml --policies fair,saath --report report.html",
            "weir compare examples/jobs.toml --policies fair,saath,saba",
            "weir compare trace.txt --fabric examples/wide-area/private-cloud.toml --policies mrtf,siphon",
        ],
    ),
    (
        "weir sweep",
        &[
            "weir sweep trace.txt --policies saath --baseline aalo --vary start=1MB,10MB,100MB,1GB",
            "weir sweep trace.txt --policies saath --baseline aalo --fixed-baseline --vary arrival=0.5,1,2,4",
            "weir sweep trace.txt --policies saath,aalo --vary interval=0,8ms,80ms --vary arrival=0.5,1,2",
            "weir sweep day1.txt day2.txt day3.txt --policies aalo,saath --vary aalo:start=1MB,10MB --confidence",
            "weir sweep trace.txt --fabric examples/wide-area/private-cloud.toml --policies mrtf,siphon --vary depth=1..3 --seeds 1..20 --confidence",
        ],
    ),
    (
        "weir explain",
        &[
            "weir explain trace.txt --policy saath --coflow 7",
            "weir explain trace.txt --policy aalo --coflow 7 --all --format csv",
            "weir explain trace.txt --policy saath --slowest 3",
            "weir explain trace.txt --policy saath --coflow 7 --trace-events coflow.json",
        ],
    ),
    (
        "weir share",
        &[
            "weir share examples/netshare-5.3.toml",
            "weir share examples/scenarios/guarantee.toml --mechanism central,queues+central",
            "weir share examples/netshare-5.3.toml --mechanism queues,queues+throttling --over-time rates.csv --format json",
        ],
    ),
    (
        "weir reproduce",
        &[
            "weir reproduce saath --trace FB2010-1Hr-150-0.txt --out saath.md",
            "weir reproduce netshare --out netshare.md",
            "weir reproduce live --only programs",
        ],
    ),
    (
        "weir reproduce saath",
        &[
            "weir reproduce saath --trace FB2010-1Hr-150-0.txt",
            "weir reproduce saath --trace FB2010-1Hr-150-0.txt --out docs/results/saath.md --jobs 2",
            "weir reproduce saath --trace FB2010-1Hr-150-0.txt --interval 40ms --no-timing",
        ],
    ),
    (
        "weir reproduce netshare",
        &[
            "weir reproduce netshare",
            "weir reproduce netshare --out docs/results/netshare.md",
            "weir reproduce netshare --seeds 100 --jobs 2",
        ],
    ),
    (
        "weir reproduce saba",
        &[
            "weir reproduce saba --no-timing",
            "weir reproduce saba --out docs/results/saba.md --jobs 2",
            "weir reproduce saba --setups 50 --seed 7 --no-timing",
        ],
    ),
    (
        "weir reproduce siphon",
        &[
            "weir reproduce siphon --trace FB2010-1Hr-150-0.txt",
            "weir reproduce siphon --trace FB2010-1Hr-150-0.txt --out docs/results/siphon.md --jobs 2",
            "weir reproduce siphon --trace FB2010-1Hr-150-0.txt --seeds 20",
        ],
    ),
    (
        "weir reproduce django",
        &[
            "weir reproduce django --trace FB2010-1Hr-150-0.txt",
            "weir reproduce django --trace FB2010-1Hr-150-0.txt --out docs/results/django.md --jobs 2",
            "weir reproduce django --trace FB2010-1Hr-150-0.txt --seeds 100 --no-timing",
        ],
    ),
    (
        "weir reproduce composition",
        &[
            "weir reproduce composition",
            "weir reproduce composition --out docs/results/composition.md",
            "weir reproduce composition --seeds 50 --jobs 2",
        ],
    ),
    (
        "weir reproduce fabrics",
        &[
            "weir reproduce fabrics",
            "weir reproduce fabrics --out docs/results/fabrics.md --jobs 2",
            "weir reproduce fabrics --seeds 5",
        ],
    ),
    (
        "weir reproduce weir",
        &[
            "weir reproduce weir --trace FB2010-1Hr-150-0.txt --out docs/results/weir.md --jobs 2",
            "weir reproduce weir --only \"single flows\" --only shifted --seeds 4",
            "weir reproduce weir --priors --seeds 4",
        ],
    ),
    (
        "weir reproduce live",
        &[
            "weir reproduce live --out docs/results/live.md",
            "weir reproduce live --only netshare --phase 5s",
            "weir reproduce live --only fabric --coflows 6",
        ],
    ),
    (
        "weir reproduce django-live",
        &[
            "weir reproduce django-live --trace FB2010-1Hr-150-0.txt --out docs/results/django-live.md",
            "weir reproduce django-live --trace FB2010-1Hr-150-0.txt --coflows 10",
            "weir reproduce django-live --trace small.txt --coflows 10 --name trial --quiet",
        ],
    ),
    (
        "weir saba",
        &[
            "weir saba profile --out table.toml",
            "weir saba weights table.toml --apps LR,PR",
            "weir compare examples/jobs.toml --policies fair,saba",
        ],
    ),
    (
        "weir saba profile",
        &[
            "weir saba profile --out table.toml",
            "weir saba profile --workload LR,SQL --degree 2",
            "weir saba profile --format csv",
        ],
    ),
    (
        "weir saba weights",
        &[
            "weir saba weights table.toml --apps LR,PR",
            "weir saba weights table.toml --apps LR,SQL,SQL,Sort --c-saba 0.8 --format json",
            "weir saba weights table.toml --apps LR,PR,Sort --floor 0.5",
        ],
    ),
    (
        "weir predict",
        &[
            "weir predict train examples/incast/classes.csv --out model.toml",
            "weir predict connections examples/incast/model.toml --loss 0.46 --threshold 20",
            "weir compare trace.txt --policies django:connections=30,aalo+",
        ],
    ),
    (
        "weir predict train",
        &[
            "weir predict train examples/incast/classes.csv --out model.toml",
            "weir predict train incast.csv --seed 7 --c 100 --gamma 10",
            "weir predict train incast.csv --format json",
        ],
    ),
    (
        "weir predict connections",
        &[
            "weir predict connections examples/incast/model.toml --loss 0.46 --threshold 20",
            "weir predict connections model.toml --loss 0.1 --threshold 65 --format json",
            "weir compare trace.txt --policies django:connections=80,aalo+",
        ],
    ),
    (
        "weir profile",
        &[
            "weir profile --bed bed --name shuffle --out table.toml -- python3 examples/jobs/shuffle.py weir-bed-h0 weir-bed-h1 weir-bed-h2",
            "weir profile --interface eth0 --rate 10Gbit --runs 5 --samples samples.csv -- ./job.sh",
            "weir profile --interface eth0 --rate 1Gbit --timeout 10min --log job.log -- ./job.sh",
            "weir profile --coordinator 127.0.0.1:7701 --hosts node-1,node-2,node-3 --out table.toml -- ./job.sh",
        ],
    ),
    ("weir policies", &["weir policies", "weir policies saath", "weir policies tree"]),
    (
        "weir trace",
        &[
            "weir trace check trace.txt",
            "weir trace describe trace.txt",
            "weir trace generate --preset facebook --seed 7 --out trace.txt",
        ],
    ),
    (
        "weir trace check",
        &[
            "weir trace check examples/demo.txt",
            "weir trace check trace.txt --trace-unit MiB",
            "weir trace check examples/jobs.toml",
        ],
    ),
    (
        "weir trace describe",
        &[
            "weir trace describe examples/demo.txt",
            "weir trace describe trace.weir --per-stage",
            "weir trace describe trace.txt --format json --out trace.json",
        ],
    ),
    (
        "weir trace generate",
        &[
            "weir trace generate --preset facebook --seed 7 --out trace.txt",
            "weir trace generate --ports 20 --coflows 50 --mappers uniform:1,10 --size pareto:1.2,1,1000 --arrival burst",
            "weir trace generate --services 2 --applications 3 --out shared.weir",
            "weir trace generate --cdf web-search --load 0.5 --coflows 5000 --ports 16 --port-rate 100Gbit --out flows.weir",
            "weir trace generate --cdf sizes.txt --load 0.4 --incast-degree 20 --incast-load 0.02 --out incast.weir",
        ],
    ),
    (
        "weir trace convert",
        &[
            "weir trace convert trace.txt trace.weir",
            "weir trace convert trace.weir - --to coflow-benchmark",
            "weir trace convert examples/jobs.toml jobs.weir",
            "weir trace convert examples/flows.csv flows.weir --columns start=start_ms:ms,src=from,dst=to,bytes=size_kB:kB,coflow=shuffle",
            "weir trace convert --from htsim connections.cm trace.weir",
        ],
    ),
    (
        "weir trace merge",
        &[
            "weir trace merge day.weir night.weir --out both.weir",
            "weir trace merge trace.txt incast.weir --to weir --out busy.weir",
            "weir trace merge one.txt two.txt | weir trace check -",
        ],
    ),
    (
        "weir fabric",
        &[
            "weir fabric check fabric.toml",
            "weir fabric describe examples/fabrics/fat-tree-4.toml",
            "weir fabric generate leaf-spine --spines 4 --leaves 8 --hosts 16 --rate 10Gbit --oversubscription 2",
        ],
    ),
    (
        "weir fabric check",
        &[
            "weir fabric check examples/fabrics/leaf-spine-16.toml",
            "weir fabric check examples/wide-area/private-cloud.toml",
            "weir fabric generate netshare-fig7 | weir fabric check -",
        ],
    ),
    (
        "weir fabric describe",
        &[
            "weir fabric describe examples/fabrics/leaf-spine-16.toml",
            "weir fabric describe fabric.toml --format json",
            "weir fabric generate fat-tree --ports 8 --rate 10Gbit | weir fabric describe -",
        ],
    ),
    (
        "weir fabric generate",
        &[
            "weir fabric generate big-switch --hosts 4 --rate 1Gbit",
            "weir fabric generate leaf-spine --spines 4 --leaves 8 --hosts 16 --rate 10Gbit --oversubscription 2",
            "weir fabric generate fat-tree --ports 8 --rate 10Gbit --cables --out fabric.toml",
        ],
    ),
    (
        "weir fabric generate big-switch",
        &[
            "weir fabric generate big-switch --hosts 4 --rate 1Gbit",
            "weir fabric generate big-switch --hosts 4 --rate 100Mbit --out fabric.toml",
            "weir fabric generate big-switch --hosts 3 --rate 100Mbit | weir testbed up -",
        ],
    ),
    (
        "weir fabric generate leaf-spine",
        &[
            "weir fabric generate leaf-spine --spines 4 --leaves 8 --hosts 16 --rate 10Gbit --oversubscription 2",
            "weir fabric generate leaf-spine --spines 2 --leaves 4 --hosts 4 --rate 1Gbit --oversubscription 1 --out fabric.toml",
            "weir fabric generate leaf-spine --spines 2 --leaves 2 --hosts 2 --rate 1Gbit --oversubscription 1 --cables",
        ],
    ),
    (
        "weir fabric generate fat-tree",
        &[
            "weir fabric generate fat-tree --ports 4 --rate 1Gbit",
            "weir fabric generate fat-tree --ports 8 --rate 10Gbit --oversubscription 4 --out fabric.toml",
            "weir fabric generate fat-tree --ports 4 --rate 1Gbit --cables",
        ],
    ),
    (
        "weir fabric generate saba-tiers",
        &[
            "weir fabric generate saba-tiers",
            "weir fabric generate saba-tiers --oversubscription 4 --out fabric.toml",
            "weir fabric generate saba-tiers | weir fabric describe -",
        ],
    ),
    (
        "weir fabric generate netshare-fig1",
        &[
            "weir fabric generate netshare-fig1",
            "weir fabric generate netshare-fig1 --cables",
            "weir fabric generate netshare-fig1 --out fabric.toml",
        ],
    ),
    (
        "weir fabric generate netshare-fig3",
        &[
            "weir fabric generate netshare-fig3",
            "weir fabric generate netshare-fig3 --cables",
            "weir fabric generate netshare-fig3 --out fabric.toml",
        ],
    ),
    (
        "weir fabric generate netshare-fig6",
        &[
            "weir fabric generate netshare-fig6",
            "weir fabric generate netshare-fig6 --cables",
            "weir fabric generate netshare-fig6 | weir testbed up - --name fig6",
        ],
    ),
    (
        "weir fabric generate netshare-fig7",
        &[
            "weir fabric generate netshare-fig7",
            "weir fabric generate netshare-fig7 --cables",
            "weir fabric generate netshare-fig7 | weir testbed up - --name fig7",
        ],
    ),
    (
        "weir fabric generate netshare-fig16",
        &[
            "weir fabric generate netshare-fig16 --services 8",
            "weir fabric generate netshare-fig16 --services 2 --cables",
            "weir fabric generate netshare-fig16 --services 8 --out fabric.toml",
        ],
    ),
    (
        "weir testbed",
        &[
            "weir testbed up examples/fabrics/leaf-spine-16.toml",
            "weir testbed run examples/netshare-5.3.toml",
            "weir testbed down",
        ],
    ),
    (
        "weir testbed up",
        &[
            "weir testbed up examples/fabrics/leaf-spine-16.toml",
            "weir testbed up fabric.toml --name racks",
            "weir fabric generate netshare-fig7 | weir testbed up - --name fig7 --dry-run",
        ],
    ),
    (
        "weir testbed run",
        &[
            "weir testbed run examples/netshare-5.3.toml",
            "weir testbed run examples/netshare-5.3.toml --mechanism queues",
            "weir testbed run examples/netshare-5.3.toml --format csv --out rates.csv",
        ],
    ),
    (
        "weir testbed incast",
        &[
            "weir testbed incast --buffers 25,100,250 --connections 5,50,200",
            "weir testbed incast --buffers 25,100,250 --connections 5,50,200 --format csv --out incast.csv",
            "weir testbed incast --buffers 25,100,250 --connections 5,50,200 --marks 20 --congestion dctcp",
            "weir testbed incast --buffers 25,100,250 --connections 5,50,100 --bytes 1MB --steady",
        ],
    ),
    (
        "weir testbed down",
        &["weir testbed down", "weir testbed down --name fig7", "weir testbed list && weir testbed down"],
    ),
    (
        "weir testbed list",
        &[
            "weir testbed list",
            "weir testbed list --name bed",
            "nsenter --net=/run/netns/weir-bed-h3 weir testbed list",
        ],
    ),
    (
        "weir testbed check",
        &[
            "weir testbed check",
            "weir testbed check && weir testbed up fabric.toml",
            "unshare -Urnm sh -c 'mount -t tmpfs none /run && weir testbed check'",
        ],
    ),
    (
        "weir serve",
        &[
            "weir serve --check examples/serve.toml",
            "weir serve --check-store weir.redb",
            "weir serve --config examples/serve.toml --log json",
        ],
    ),
    (
        "weir ctl",
        &[
            "weir ctl hosts",
            "weir ctl coflows --format csv",
            "weir ctl policy set saath:d=4",
            "weir ctl weight ads 3",
            "weir ctl hosts --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem",
        ],
    ),
    (
        "weir ctl trace",
        &[
            "weir ctl trace > decisions.json",
            "weir ctl trace --out decisions.json",
            "weir ctl trace --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem --out decisions.json",
        ],
    ),
    (
        "weir ctl pause",
        &[
            "weir ctl pause --all",
            "weir ctl pause --host node-1,node-2 --queues",
            "weir ctl pause --service ads --shadow",
            "weir ctl pause --all --shadow --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem",
        ],
    ),
    (
        "weir ctl resume",
        &[
            "weir ctl resume --all",
            "weir ctl resume --host node-1",
            "weir ctl resume --service ads,batch --coordinator 127.0.0.1:7701",
        ],
    ),
    (
        "weir ctl reload",
        &["weir ctl reload --check", "weir ctl reload", "weir ctl reload --check --format json"],
    ),
    (
        "weir ctl paused",
        &["weir ctl paused", "weir ctl paused --format json", "weir ctl paused --out paused.txt"],
    ),
    (
        "weir ctl workload",
        &[
            "weir ctl workload --out recorded.weir",
            "weir ctl workload > recorded.weir",
            "weir ctl workload --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem --out recorded.weir",
        ],
    ),
    (
        "weir ctl hosts",
        &[
            "weir ctl hosts",
            "weir ctl hosts --format csv",
            "weir ctl hosts --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem",
        ],
    ),
    (
        "weir ctl hosts remove",
        &[
            "weir ctl hosts remove node-7",
            "weir ctl hosts remove node-7 --force",
            "weir ctl hosts remove node-7 --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem",
        ],
    ),
    (
        "weir ctl switches",
        &["weir ctl switches", "weir ctl switches --format json", "weir ctl switches --out switches.txt"],
    ),
    (
        "weir ctl links",
        &["weir ctl links", "weir ctl links --format json", "weir ctl links --format csv --out links.csv"],
    ),
    (
        "weir ctl links down",
        &[
            "weir ctl links down node-7",
            "weir ctl links down leaf-1:spine-2 leaf-2:spine-2",
            "weir ctl links down node-7 --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem",
        ],
    ),
    (
        "weir ctl links up",
        &[
            "weir ctl links up node-7",
            "weir ctl links up leaf-1:spine-2 leaf-2:spine-2",
            "weir ctl links up node-7 --coordinator 127.0.0.1:7701",
        ],
    ),
    (
        "weir ctl queues",
        &[
            "weir ctl queues",
            "weir ctl queues --format json",
            "weir ctl queues --format csv --out queues.csv",
        ],
    ),
    (
        "weir ctl coflows",
        &[
            "weir ctl coflows",
            "weir ctl coflows --format csv --out coflows.csv",
            "weir ctl coflows --coordinator 127.0.0.1:7701",
        ],
    ),
    (
        "weir ctl coflow",
        &[
            "weir ctl coflow show job-7-shuffle",
            "weir ctl coflow deregister job-7-shuffle",
            "weir ctl coflow show job-7-shuffle --format json",
        ],
    ),
    (
        "weir ctl coflow show",
        &[
            "weir ctl coflow show job-7-shuffle",
            "weir ctl coflow show job-7-shuffle --format csv",
            "weir ctl coflow show job-7-shuffle --coordinator 127.0.0.1:7701",
        ],
    ),
    (
        "weir ctl coflow deregister",
        &[
            "weir ctl coflow deregister job-7-shuffle",
            "weir ctl coflow deregister job-7-shuffle --coordinator 127.0.0.1:7701",
            "weir ctl coflow deregister job-7-shuffle --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem",
        ],
    ),
    (
        "weir ctl application",
        &[
            "weir ctl application register web --service web",
            "weir ctl application deregister web",
            "weir ctl applications",
        ],
    ),
    (
        "weir ctl application register",
        &[
            "weir ctl application register web --service web",
            "weir ctl application register sort-17 --service ads --model sort",
            "weir ctl application register batch --service batch --cgroup 'system.slice/job-*.service' --hosts node-1,node-2",
            "weir ctl application register web --service web --pod 2f0e7a50-4f2c-4d6b-9c8e-0a1b2c3d4e5f --hosts node-1",
            "weir ctl application register dns --service web --port 53",
            "weir ctl application register web --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem",
        ],
    ),
    (
        "weir ctl application deregister",
        &[
            "weir ctl application deregister web",
            "weir ctl application deregister web --coordinator 127.0.0.1:7701",
            "weir ctl application deregister web --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem",
        ],
    ),
    (
        "weir ctl connections",
        &[
            "weir ctl connections",
            "weir ctl connections --application sort-17",
            "weir ctl connections --format csv --out connections.csv",
        ],
    ),
    (
        "weir ctl connection",
        &[
            "weir ctl connections --application sort-17",
            "weir ctl connection close sort-17-4711",
            "weir ctl connection close --application sort-17",
        ],
    ),
    (
        "weir ctl connection close",
        &[
            "weir ctl connection close sort-17-4711",
            "weir ctl connection close --application sort-17",
            "weir ctl connection close sort-17-4711 --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem",
        ],
    ),
    (
        "weir ctl events",
        &[
            "weir ctl events",
            "weir ctl events --format json",
            "weir ctl events --count 1 --coordinator 127.0.0.1:7701",
        ],
    ),
    (
        "weir ctl allocation",
        &[
            "weir ctl allocation",
            "weir ctl allocation --format csv --out rates.csv",
            "weir ctl allocation --coordinator 127.0.0.1:7701",
        ],
    ),
    (
        "weir ctl relays",
        &["weir ctl relays", "weir ctl relays --format json", "weir ctl relays --coordinator 127.0.0.1:7701"],
    ),
    (
        "weir ctl routes",
        &["weir ctl routes", "weir ctl routes --format json", "weir ctl routes --out routes.txt"],
    ),
    (
        "weir ctl paths",
        &["weir ctl paths", "weir ctl paths --format csv --out paths.csv", "weir ctl paths --format json"],
    ),
    (
        "weir ctl services",
        &[
            "weir ctl services",
            "weir ctl services --format json",
            "weir ctl services --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem",
        ],
    ),
    (
        "weir ctl sensitivity",
        &[
            "weir ctl sensitivity load table.toml",
            "weir ctl sensitivity show",
            "weir ctl sensitivity show --format csv",
        ],
    ),
    (
        "weir ctl sensitivity show",
        &[
            "weir ctl sensitivity show",
            "weir ctl sensitivity show --out table.toml",
            "weir ctl sensitivity show --format json",
        ],
    ),
    (
        "weir ctl sensitivity load",
        &[
            "weir ctl sensitivity load table.toml",
            "weir ctl sensitivity load table.toml --coordinator 127.0.0.1:7701",
            "weir ctl sensitivity load table.toml --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem",
        ],
    ),
    (
        "weir ctl applications",
        &[
            "weir ctl applications",
            "weir ctl applications --format csv",
            "weir ctl applications --coordinator 127.0.0.1:7701",
        ],
    ),
    (
        "weir ctl observed",
        &[
            "weir ctl observed",
            "weir ctl observed --format csv --out observed.csv",
            "weir ctl observed --coordinator 127.0.0.1:7701",
        ],
    ),
    (
        "weir ctl weight",
        &[
            "weir ctl weight ads 3",
            "weir ctl weight batch 0.5",
            "weir ctl weight ads --min-bandwidth 100Mbit --max-bandwidth 200Mbit",
            "weir ctl weight ads --max-bandwidth none",
            "weir ctl weight ads 3 --coordinator weir.example:7701 --certificate ann.pem --key ann.key --authority authority.pem",
        ],
    ),
    (
        "weir ctl backup",
        &[
            "weir ctl backup weir-backup.redb",
            "weir ctl backup weir-backup.redb --replace",
            "weir ctl backup weir-backup.redb && weir serve --check-store weir-backup.redb",
        ],
    ),
    (
        "weir ctl policy",
        &[
            "weir ctl policy get",
            "weir ctl policy set saath:d=4",
            "weir ctl policy set tree:examples/serve-tree.toml",
        ],
    ),
    (
        "weir ctl policy get",
        &[
            "weir ctl policy get",
            "weir ctl policy get --format json",
            "weir ctl policy get --coordinator 127.0.0.1:7701",
        ],
    ),
    (
        "weir ctl policy set",
        &[
            "weir ctl policy set saath:d=4",
            "weir ctl policy set weir",
            "weir ctl policy set tree:examples/serve-tree.toml",
        ],
    ),
    (
        "weir agent",
        &[
            "weir agent run --name node-4 --rate 1Gbit --coordinator 127.0.0.1:7700",
            "weir agent queues --interface eth0 --rate 1Gbit --weights 1:3:9 --dry-run",
            "weir agent cleanup",
        ],
    ),
    (
        "weir agent run",
        &[
            "weir agent run --name node-4 --rate 1Gbit --coordinator 127.0.0.1:7700",
            "weir agent run --name node-4 --rate 1Gbit --interface eth0 --application web=system.slice/web.service",
            "weir agent run --rate 1Gbit --coordinator weir.example:7700 --certificate node-4.pem --key node-4.key --authority authority.pem",
            "weir agent run --name node-7 --rate 1Gbit --interface eth0 --network 10.244.7.0/24 --network fd00:244:7::/64",
            "weir agent run --name node-8 --rate 1Gbit --interface eth0 --label rack=leaf-1",
            "weir agent run --name edge-1 --port eth1=10Gbit --port eth2=10Gbit",
        ],
    ),
    (
        "weir agent queues",
        &[
            "weir agent queues --interface eth0 --rate 1Gbit --weights 1:3:9 --dry-run",
            "weir agent queues --interface eth0 --rate 1Gbit --weights 1:3:9",
            "nsenter --net=/run/netns/weir-bed-h0 weir agent queues --interface eth0 --rate 100Mbit --weights 1:1",
        ],
    ),
    (
        "weir agent traffic",
        &[
            "weir agent traffic --interface eth0 --application web=port/8080:1",
            "weir agent traffic --interface eth0 --application web=system.slice/web.service:1 --application batch=batch:2",
            "weir agent traffic --interface eth0 --interface eth1 --application batch=batch",
        ],
    ),
    (
        "weir agent cleanup",
        &[
            "weir agent cleanup",
            "systemctl disable --now weir-agent && weir agent cleanup",
            "nsenter --net=/run/netns/weir-bed-h0 weir agent cleanup",
        ],
    ),
    (
        "weir relay",
        &[
            "weir relay run --name west --overlay overlay.toml --dry-run",
            "weir relay run --name west --overlay overlay.toml --insecure",
            "weir relay run --name west --coordinator weir.example:7700 --certificate west.pem --key west.key --authority authority.pem",
        ],
    ),
    (
        "weir relay run",
        &[
            "weir relay run --name west --overlay overlay.toml --dry-run",
            "weir relay run --name west --overlay overlay.toml --insecure",
            "weir relay run --name west --coordinator weir.example:7700 --certificate west.pem --key west.key --authority authority.pem",
        ],
    ),
    (
        "weir completions",
        &[
            "weir completions bash > ~/.local/share/bash-completion/completions/weir",
            "weir completions zsh > ~/.zfunc/_weir",
            "weir completions fish > ~/.config/fish/completions/weir.fish",
        ],
    ),
    ("weir man", &["weir man | man -l -", "weir man --out man1", "weir man --out ~/.local/share/man/man1"]),
];
