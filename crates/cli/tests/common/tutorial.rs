//! Runs the `sh` blocks of a tutorial in one shell, and compares their output with the `text` block that follows.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// An `sh` block, and the `text` block right after it.
struct Block {
    commands: String,
    output: Option<String>,
}

/// The blocks of a page in order.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for part in page.split("\n```sh\n").skip(1) {
        let (commands, rest) = part.split_once("\n```\n").expect("a block has an end");
        let output = rest.strip_prefix("\n```text\n").map(|rest| {
            let (output, _) = rest.split_once("```").expect("a block has an end");
            output.to_owned()
        });
        blocks.push(Block { commands: commands.to_owned(), output });
    }
    blocks
}

/// Whether the output of a block is as on the page. A line `...` stands for any lines, `...` in a line for any text, and a number after
/// `~` for a number that differs by at most a tenth.
fn matches(expected: &[&str], found: &[&str]) -> bool {
    match expected.split_first() {
        None => found.is_empty(),
        Some((&"...", rest)) => (0..=found.len()).any(|skipped| matches(rest, &found[skipped..])),
        Some((line, rest)) => found
            .split_first()
            .is_some_and(|(first, others)| line_matches(line, first.trim_end()) && matches(rest, others)),
    }
}

fn line_matches(expected: &str, found: &str) -> bool {
    if let Some((before, after)) = expected.split_once("...") {
        let rest = found.strip_prefix(before);
        return rest.is_some_and(|rest| {
            (0..=rest.len())
                .any(|skipped| rest.is_char_boundary(skipped) && line_matches(after, &rest[skipped..]))
        });
    }
    let Some((before, after)) = expected.split_once('~') else { return expected == found };
    let number = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        text[..end].parse::<f64>().ok().map(|value| (value, text[end..].to_owned()))
    };
    let expected = number(after);
    let found = found.strip_prefix(before).and_then(number);
    expected.zip(found).is_some_and(|((expected, expected_rest), (found, found_rest))| {
        (found - expected).abs() <= 0.1 * expected && expected_rest == found_rest
    })
}

/// The maximum time between two lines of output. A block can compile a program.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// A shell and the processes that it started, which are killed when it is dropped.
pub struct Tutorial {
    shell: Child,
    input: ChildStdin,
    /// The lines of its output.
    output: mpsc::Receiver<String>,
    dir: TempDir,
}

impl Tutorial {
    /// Starts a shell in an empty folder, with a `PATH` that begins with the folder of `weir`.
    pub fn start(environment: &[(&str, &str)]) -> Tutorial {
        let dir = TempDir::new().unwrap();
        let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
        let cargo = Path::new(env!("CARGO")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command.arg("--norc").current_dir(dir.path()).process_group(0);
        command.env("PATH", format!("{}:{}:{path}", weir.display(), cargo.display())).env("LC_ALL", "C");
        command.envs(environment.iter().copied());
        let log = fs::File::create(dir.path().join(".stderr")).unwrap();
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let (input, stdout) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let (lines, output) = mpsc::channel();
        thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            while stdout.read_line(&mut line).is_ok_and(|length| length > 0) {
                // The test ends before the shell.
                let _ = lines.send(std::mem::take(&mut line));
            }
        });
        Tutorial { shell, input, output, dir }
    }

    /// Runs commands, and returns their exit code and output.
    fn run(&mut self, commands: &str) -> (String, String) {
        const END: &str = "@end-of-block ";
        let file = self.dir.path().join(".block");
        fs::write(&file, commands).unwrap();
        writeln!(self.input, ". {} < /dev/null; printf '\\n{END}%s\\n' $?", file.display()).unwrap();
        let mut text = String::new();
        loop {
            let line = self.output.recv_timeout(BLOCK_TIMEOUT);
            let line = line.unwrap_or_else(|error| panic!("{error}: {commands}{}", self.log()));
            if let Some(code) = line.strip_prefix(END) {
                assert_eq!(text.pop(), Some('\n'));
                return (code.trim().to_owned(), text);
            }
            text += &line;
        }
    }

    /// The end of the standard error.
    fn log(&self) -> String {
        let text = fs::read_to_string(self.dir.path().join(".stderr")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        format!("\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    /// Runs all blocks of a page. A block has to succeed. If it has an output and fails, or its output is not that of the page, its last
    /// line runs again until `patience` has passed.
    pub fn run_page(&mut self, page: &str, patience: Duration) {
        let blocks = blocks(page);
        assert!(blocks.len() > 8, "{} blocks", blocks.len());
        for Block { commands, output } in &blocks {
            let (mut code, mut found) = self.run(commands);
            let Some(output) = output else {
                assert_eq!(code, "0", "{commands}\n{found}{}", self.log());
                continue;
            };
            let start = Instant::now();
            let expected: Vec<&str> = output.lines().collect();
            while code != "0" || !matches(&expected, &found.lines().collect::<Vec<_>>()) {
                let log = self.log();
                assert!(
                    start.elapsed() < patience,
                    "{commands}\nexpected:\n{output}\nfound, exit code {code}:\n{found}{log}"
                );
                let last = commands.lines().last().unwrap_or_default();
                (code, found) = self.run(last);
            }
        }
    }
}

impl Drop for Tutorial {
    fn drop(&mut self) {
        let group = format!("-{}", self.shell.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.shell.wait();
    }
}

#[test]
fn output_patterns_match_any_text_and_close_numbers() {
    let found = ["web 71 Mbit/s", "batch 24 Mbit/s"];
    assert!(matches(&["web ~72 Mbit/s", "batch ... Mbit/s"], &found));
    assert!(matches(&["..."], &found) && matches(&["...", "batch 24 Mbit/s"], &found));
    assert!(!matches(&["web ~60 Mbit/s", "..."], &found) && !matches(&["web 71 Mbit/s"], &found));
}
