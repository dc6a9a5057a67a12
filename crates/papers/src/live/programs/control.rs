//! A coordinator and an agent as processes in one host, which speak over its loopback.

use std::env;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use weir_client::{Coordinator, CoordinatorError};
use weir_core::units::Rate;
use weir_testbed::{Node, namespace};

use super::super::process::{Process, command, inside, pause};
use super::cast::APPLICATIONS;
use weir_console::failure::Failure;

/// Where the coordinator answers.
const API: &str = "127.0.0.1:7701";

/// What the coordinator gives an application at the host's link.
#[derive(Debug, Clone, Copy)]
pub struct Given {
    /// The class of its packets: their DSCP.
    pub class: u8,
    /// Its part of the link.
    pub share: f64,
}

/// A coordinator and the first host's agent, gone with this.
pub struct Control {
    node: Node,
    hosts: Vec<String>,
    program: PathBuf,
    processes: Vec<Process>,
}

impl Drop for Control {
    fn drop(&mut self) {
        // The agent first, and then what it left.
        while self.processes.pop().is_some() {}
        if let Ok(mut cleanup) = Process::begin(self.inside(&["agent", "cleanup"])) {
            let _ = cleanup.0.wait();
        }
    }
}

impl Control {
    /// Begins a coordinator in the first of these hosts; `shared` is what its configuration says of how links are shared.
    ///
    /// # Errors
    /// If it cannot, or somebody asks to stop.
    pub fn begin(nodes: &[Node], rate: Rate, shared: &str, place: &Path) -> Result<Control, Failure> {
        let hosts: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
        let mut config = format!(
            "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\n{shared}\
             [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n[host]\n"
        );
        hosts.iter().for_each(|host| config.push_str(&format!("{host} = \"{rate}\"\n")));
        let file = place.join("serve.toml");
        fs::write(&file, config).map_err(Failure::undone)?;
        let program = env::current_exe().map_err(Failure::undone)?;
        let mut control = Control { node: nodes[0].clone(), hosts, program, processes: Vec::new() };
        let serve = control.inside(&["serve", "--config", &file.display().to_string()]);
        control.processes.push(Process::begin(serve).map_err(Failure::undone)?);
        control.wait_for("a coordinator", |_| Ok(TcpStream::connect(API).is_ok()))?;
        Ok(control)
    }

    /// Begins the host's agent, and waits until its link has queues.
    ///
    /// # Errors
    /// If it cannot, or somebody asks to stop.
    pub fn attend(&mut self, rate: Rate, groups: [&Path; 2], place: &Path) -> Result<(), Failure> {
        let interface = self.node.ports[0].interface.clone();
        // The bed's own queue does not give way, since nobody else could put it back. The bed goes, or gets its queues anew.
        let bare = ["tc", "qdisc", "del", "dev", &interface, "root"].map(str::to_owned);
        let mut remove = Process::begin(command(&[inside(&self.node), bare.to_vec()].concat()))
            .map_err(Failure::undone)?;
        remove.0.wait().map_err(Failure::undone)?;
        let door = place.join("agent").display().to_string();
        let rate = rate.to_string();
        let mut words = vec!["agent", "run", "--host", "0", "--rate", &rate, "--socket", &door];
        words.extend(["--interface", &interface]);
        let rules: Vec<String> = APPLICATIONS
            .iter()
            .zip(groups)
            .map(|(name, group)| format!("--application={name}={}", group.display()))
            .collect();
        words.extend(rules.iter().map(String::as_str));
        let agent = self.inside(&words);
        self.processes.push(Process::begin(agent).map_err(Failure::undone)?);
        let show =
            [inside(&self.node), ["tc", "class", "show", "dev", &interface].map(str::to_owned).to_vec()];
        let show = show.concat();
        self.wait_for("an agent (`weir agent run` says why)", |_| {
            let output = command(&show).output().map_err(Failure::undone)?;
            Ok(String::from_utf8_lossy(&output.stdout).contains("htb 7765:100 "))
        })
    }

    /// Registers the applications, each with a connection to a host of its own.
    ///
    /// # Errors
    /// If that is refused.
    pub fn register(&self, models: [&str; 2]) -> Result<(), Failure> {
        for ((name, model), to) in APPLICATIONS.iter().zip(models).zip(&self.hosts[1..]) {
            self.put(&format!("/v1/applications/{name}"), &json!({ "model": model }).to_string())?;
            let connection = json!({ "application": name, "from": self.hosts[0], "to": to });
            self.put(&format!("/v1/connections/{name}"), &connection.to_string())?;
        }
        Ok(())
    }

    /// Registers the applications, each as one of these services.
    ///
    /// # Errors
    /// If that is refused.
    pub fn register_in(&self, services: [&str; 2]) -> Result<(), Failure> {
        for (name, service) in APPLICATIONS.iter().zip(services) {
            self.put(&format!("/v1/applications/{name}"), &json!({ "service": service }).to_string())?;
        }
        Ok(())
    }

    /// What the connections of each application may send now, in bytes per second; nothing if they are free.
    ///
    /// # Errors
    /// If the coordinator does not say.
    pub fn limits(&self) -> Result<[Option<f64>; 2], Failure> {
        let found = self.get("/v1/found")?;
        let limit = |name: &str| {
            let mine = found.as_array()?.iter().find(|found| found["application"] == name)?;
            mine["limit_bytes_per_second"].as_f64()
        };
        Ok(APPLICATIONS.map(limit))
    }

    /// What the applications are given at the host's link.
    ///
    /// # Errors
    /// If the coordinator does not say.
    pub fn given(&self) -> Result<[Given; 2], Failure> {
        let (queues, applications) = (self.get("/v1/queues")?, self.get("/v1/applications")?);
        let unsaid = || Failure::undone("the coordinator has no queues for the first host");
        let find = |list: &Value, is: &dyn Fn(&Value) -> bool| {
            list.as_array().and_then(|list| list.iter().find(|value| is(value)).cloned()).ok_or_else(unsaid)
        };
        let port = find(&queues, &|q| q["host"] == self.hosts[0].as_str() && q["way"] == "out")?;
        let given = |name: &str| {
            let level = find(&applications, &|a| a["id"] == name)?["level"].as_u64().ok_or_else(unsaid)?;
            let queue = port["queue_of"][level as usize].as_u64().ok_or_else(unsaid)?;
            let share = port["weights"][queue as usize].as_f64().ok_or_else(unsaid)?;
            Ok::<Given, Failure>(Given { class: queue as u8 + 1, share })
        };
        Ok([given(APPLICATIONS[0])?, given(APPLICATIONS[1])?])
    }

    /// Sets something.
    ///
    /// # Errors
    /// If it is refused.
    pub fn put(&self, path: &str, body: &str) -> Result<(), Failure> {
        self.ask(|api| api.put_text(path, body)).map(drop)
    }

    fn get(&self, path: &str) -> Result<Value, Failure> {
        self.ask(|api| api.get(path))
    }

    /// What the coordinator answers.
    fn ask(
        &self,
        question: impl FnOnce(Coordinator) -> Result<Value, CoordinatorError> + Send,
    ) -> Result<Value, Failure> {
        let answer = namespace::inside(&self.node.namespace, || Coordinator::local(API).and_then(question));
        answer.map_err(Failure::undone)?.map_err(Failure::undone)
    }

    /// `weir` with these words, inside the host.
    fn inside(&self, words: &[&str]) -> std::process::Command {
        let mut all = inside(&self.node);
        all.push(self.program.display().to_string());
        all.extend(words.iter().map(|&word| word.to_owned()));
        command(&all)
    }

    fn wait_for(
        &self,
        what: &str,
        there: impl Fn(&Control) -> Result<bool, Failure> + Sync,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        loop {
            let is = namespace::inside(&self.node.namespace, || there(self));
            if is.map_err(Failure::undone)?? {
                return Ok(());
            }
            pause(began, what)?;
        }
    }
}
