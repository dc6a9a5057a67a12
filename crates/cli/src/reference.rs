//! What is made from the definitions of the command line: completions, man pages, and the reference in Markdown.

use std::fmt::Write as _;
use std::fs;
use std::io;

use clap::{Arg, Command, CommandFactory};

use crate::args::{self, Cli};
use weir_console::failure::Failure;
use weir_console::output::{self, Pending};

/// Runs `weir completions`.
///
/// # Errors
/// If nobody takes them.
pub fn completions(args: &args::Completions) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "weir", &mut text);
    Ok(output::print(&text)?)
}

/// Runs `weir man`.
///
/// # Errors
/// If pages cannot be written.
pub fn man(args: &args::Man) -> Result<(), Failure> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let Some(folder) = &args.out else {
        return Ok(output::print(&page(&command, "weir")?)?);
    };
    fs::create_dir_all(folder).map_err(|error| Failure::output(folder, &error))?;
    let mut pages = Vec::new();
    collect(&command, "weir", &mut pages)?;
    for (name, text) in pages {
        Pending::begin(&folder.join(format!("{name}.1")))?.fill(&text)?;
    }
    Ok(())
}

fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut text)?;
    Ok(text)
}

fn collect(command: &Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    pages.push((name.to_owned(), page(command, name)?));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        collect(sub, &format!("{name}-{}", sub.get_name()), pages)?;
    }
    Ok(())
}

/// Prints the reference of the command line.
///
/// # Errors
/// If nobody takes it.
pub fn markdown() -> Result<(), Failure> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut out =
        String::from("# The command line\n\n<!-- Made from the definitions by `weir reference`. -->\n");
    section(&command, "weir", &mut out);
    Ok(output::print(out.as_bytes())?)
}

fn section(command: &Command, name: &str, out: &mut String) {
    if name != "weir" {
        let level = "#".repeat(1 + name.split(' ').skip(1).count());
        writeln!(out, "\n{level} {name}").expect("memory takes all");
    }
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        let about = about.to_string();
        let stop = if about.ends_with('.') { "" } else { "." };
        writeln!(out, "\n{about}{stop}").expect("memory takes all");
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    writeln!(out, "\n```text\n{usage}\n```").expect("memory takes all");
    arguments(command, out);
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        writeln!(out, "\n```text\n{after}\n```").expect("memory takes all");
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        section(sub, &format!("{name} {}", sub.get_name()), out);
    }
}

fn arguments(command: &Command, out: &mut String) {
    let shown = |arg: &&Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    let (named, positional): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(shown).partition(|arg| !arg.is_positional());
    if positional.is_empty() && named.is_empty() {
        return;
    }
    let mut headings: Vec<&str> = Vec::new();
    for arg in &named {
        let heading = arg.get_help_heading().unwrap_or("Options");
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    out.push('\n');
    for arg in &positional {
        line(arg, out);
    }
    for heading in headings {
        if named.len() > 3 {
            writeln!(out, "\n{heading}:\n").expect("memory takes all");
        }
        for arg in named.iter().filter(|arg| arg.get_help_heading().unwrap_or("Options") == heading) {
            line(arg, out);
        }
    }
}

fn line(arg: &Arg, out: &mut String) {
    let value = arg.get_value_names().map(|names| names.iter().map(|n| format!("<{n}>")).collect::<String>());
    let takes = arg.get_action().takes_values();
    let value = value.filter(|_| takes).unwrap_or_default();
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} {value}"),
        (None, Some(long)) => format!("--{long} {value}"),
        _ => value,
    };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    write!(out, "- `{}`: {help}.", name.trim_end()).expect("memory takes all");
    let values: Vec<String> = match arg.get_id().as_str() {
        _ if !takes => Vec::new(),
        _ => arg.get_possible_values().iter().map(|v| format!("`{}`", v.get_name())).collect(),
    };
    if !values.is_empty() {
        write!(out, " One of {}.", values.join(", ")).expect("memory takes all");
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|v| format!("`{}`", v.to_string_lossy())).collect();
    if takes && !defaults.is_empty() {
        write!(out, " Default: {}.", defaults.join(", ")).expect("memory takes all");
    }
    out.push('\n');
}
