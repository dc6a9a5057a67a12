//! Generates documents from the definitions of the command line: completions, man pages, and the reference in Markdown.

use std::fs;
use std::io;

use clap::{Arg, Command};
use weir_console::failure::Failure;
use weir_console::output::{self, OutputFile};

use crate::args;

/// Runs `weir completions`.
pub fn completions(args: &args::Completions) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "weir", &mut text);
    Ok(output::print(text)?)
}

/// Builds the command line with the names and help of all subcommands.
fn build_command() -> Command {
    let mut command = args::command().disable_help_subcommand(true);
    command.build();
    command
}

/// Runs `weir man`.
pub fn man(args: &args::Man) -> Result<(), Failure> {
    let command = build_command();
    let Some(folder) = &args.out else {
        return Ok(output::print(man_page(&command, "weir")?)?);
    };
    fs::create_dir_all(folder).map_err(|error| Failure::output(folder, &error))?;
    let mut pages = Vec::new();
    man_pages(&command, "weir", &mut pages)?;
    for (name, text) in pages {
        OutputFile::create(&folder.join(format!("{name}.1")))?.write_and_finish(text)?;
    }
    Ok(())
}

fn man_page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut text)?;
    Ok(text)
}

fn visible_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

fn man_pages(command: &Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    pages.push((name.to_owned(), man_page(command, name)?));
    visible_subcommands(command)
        .try_for_each(|sub| man_pages(sub, &format!("{name}-{}", sub.get_name()), pages))
}

/// Prints the reference of the command line.
pub fn markdown() -> Result<(), Failure> {
    let head = "# The command line\n\n<!-- Made from the definitions by `weir reference`. -->\n";
    Ok(output::print(head.to_owned() + &command_section(&build_command(), "weir"))?)
}

/// The section of a command, followed by those of its subcommands.
fn command_section(command: &Command, name: &str) -> String {
    let mut out = String::new();
    if name != "weir" {
        let level = "#".repeat(1 + name.split(' ').skip(1).count());
        out += &format!("\n{level} {name}\n");
    }
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        let about = about.to_string();
        let period = if about.ends_with('.') { "" } else { "." };
        out += &format!("\n{about}{period}\n");
    }
    let usage = command.clone().render_usage().to_string();
    out += &format!("\n```text\n{}\n```\n", usage.trim_start_matches("Usage: "));
    out += &argument_lists(command);
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        out += &format!("\n```text\n{after}\n```\n");
    }
    out.extend(
        visible_subcommands(command).map(|sub| command_section(sub, &format!("{name} {}", sub.get_name()))),
    );
    out
}

/// Lists of positional arguments, then of options by heading.
fn argument_lists(command: &Command) -> String {
    let is_shown = |arg: &&Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    let (named, positional): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(is_shown).partition(|arg| !arg.is_positional());
    if positional.is_empty() && named.is_empty() {
        return String::new();
    }
    let heading_of = |arg: &Arg| arg.get_help_heading().unwrap_or("Options").to_owned();
    let mut headings: Vec<String> = Vec::new();
    for heading in named.iter().map(|arg| heading_of(arg)) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    let mut out: String =
        ["\n".to_owned()].into_iter().chain(positional.into_iter().map(argument_line)).collect();
    for heading in headings {
        if named.len() > 3 {
            out += &format!("\n{heading}:\n\n");
        }
        out.extend(named.iter().filter(|arg| heading_of(arg) == heading).map(|arg| argument_line(arg)));
    }
    out
}

fn argument_line(arg: &Arg) -> String {
    let takes_values = arg.get_action().takes_values();
    let value = arg.get_value_names().filter(|_| takes_values).unwrap_or_default();
    let value: String = value.iter().map(|name| format!("<{name}>")).collect();
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} {value}"),
        (None, Some(long)) => format!("--{long} {value}"),
        _ => value,
    };
    let mut line = format!("- `{}`: {}.", name.trim_end(), arg.get_help().cloned().unwrap_or_default());
    if takes_values {
        let values = arg.get_possible_values();
        line += &format_values(" One of", values.iter().map(|value| value.get_name().to_owned()));
        let defaults = arg.get_default_values().iter();
        line += &format_values(" Default:", defaults.map(|value| value.to_string_lossy().into_owned()));
    }
    line + "\n"
}

/// A word and the values after it; empty if there are no values.
fn format_values(word: &str, values: impl Iterator<Item = String>) -> String {
    let values: Vec<String> = values.map(|value| format!("`{value}`")).collect();
    if values.is_empty() { String::new() } else { format!("{word} {}.", values.join(", ")) }
}
