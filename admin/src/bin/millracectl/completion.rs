//! `completion`: scripts for command line completion.

use std::process::ExitCode;

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell as Script;

use super::arguments::Arguments;
use super::context::print;
use super::failure::Failure;

/// Shells with a completion script.
#[derive(Clone, Copy, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the shell's script.
pub fn run(shell: Shell) -> Result<ExitCode, Failure> {
    let shell = match shell {
        Shell::Bash => Script::Bash,
        Shell::Zsh => Script::Zsh,
        Shell::Fish => Script::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "millracectl", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
