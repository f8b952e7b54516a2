//! `config`: show and change the configuration.

mod change;
mod edit;
mod keys;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use millrace_admin::change::Generation;

use super::context::{CommandChangeOptions, Context};
use super::failure::Failure;

pub use change::edited;

const SET_HELP: &str = "\
Examples:
  millracectl config set reactors.poll=adaptive flow.credits=64
  millracectl config set 'exports[/scratch].access=ro' --persist
  millracectl config set 'exports[0].limits={ iops: 50000, bandwidth: 2GiB/s }'
  millracectl config set 'exports[0].limits=null' --dry-run

A KEY is written as in messages: sections separated by dots, entries of lists in brackets, by index, path,
name or address. A VALUE is written as in the file; null removes the key, so that its default
applies. All keys of one command change at once, or none.";

const EDIT_HELP: &str = "\
Opens the configuration in $VISUAL or $EDITOR (else vi). The saved text is checked here and
on the server. Then the changes, and those that need a restart, are shown for confirmation.
Leaving the editor without a change, or an empty file, changes nothing.";

/// The commands on the configuration.
#[derive(Subcommand)]
pub enum ConfigCommand {
    /// The requested configuration, as YAML (or JSON with --json).
    Show,
    /// The value of one key, such as `exports[0].access`.
    Get {
        /// The key, such as reactors.poll or 'exports[/scratch].store'.
        key: String,
    },
    /// Change keys.
    #[command(after_help = SET_HELP)]
    Set {
        /// Such as flow.credits=64.
        #[arg(required = true, value_name = "KEY=VALUE")]
        changes: Vec<String>,
        #[command(flatten)]
        options: CommandChangeOptions,
    },
    /// Apply the configuration of a file.
    Apply {
        /// YAML as millraced reads it; - for the standard input.
        file: PathBuf,
        #[command(flatten)]
        options: CommandChangeOptions,
    },
    /// Change the configuration in an editor.
    #[command(after_help = EDIT_HELP)]
    Edit {
        #[command(flatten)]
        options: CommandChangeOptions,
        /// Do not ask before the change is made.
        #[arg(long)]
        yes: bool,
    },
    /// What of the configuration is not in the server's file; or the changes that another file would
    /// make, computed without a check by the server.
    Diff {
        /// YAML as millraced reads it; - for the standard input.
        file: Option<PathBuf>,
        /// The same.
        #[arg(
            long = "file",
            id = "other",
            value_name = "PATH",
            conflicts_with = "file"
        )]
        other: Option<PathBuf>,
    },
    /// Write the configuration to the server's file, so that a restart keeps it.
    Save,
    /// The changes since the server's start, the latest first: when, who, what.
    History,
    /// The configuration of an earlier generation, as YAML (or JSON with --json).
    ShowGeneration {
        /// The number that `config history` shows.
        generation: Generation,
    },
    /// Apply the configuration of an earlier generation again.
    Rollback {
        /// The number that `config history` shows.
        generation: Generation,
        #[command(flatten)]
        options: CommandChangeOptions,
    },
    /// Reload the server's configuration file, like SIGHUP.
    Reload {
        /// Only check the file and show what it would change.
        #[arg(long)]
        dry_run: bool,
        /// Take away what is in use, too, without asking.
        #[arg(long)]
        force: bool,
    },
    /// Settings that wait for a restart, and those that are not in the file.
    Pending,
}

/// Runs the command; without one, shows the configuration.
pub fn run(context: &Context<'_>, command: Option<&ConfigCommand>) -> Result<ExitCode, Failure> {
    match command.unwrap_or(&ConfigCommand::Show) {
        ConfigCommand::Show => show::whole(context, "/api/v1/config"),
        ConfigCommand::Get { key } => show::key(context, key),
        ConfigCommand::Set { changes, options } => change::set(context, changes, *options),
        ConfigCommand::Apply { file, options } => change::apply(context, file, *options),
        ConfigCommand::Edit { options, yes } => edit::edit(context, *options, *yes),
        ConfigCommand::Diff { file, other } => match file.as_ref().or(other.as_ref()) {
            Some(file) => show::difference(context, file),
            None => show::unsaved(context),
        },
        ConfigCommand::Save => change::save(context),
        ConfigCommand::History => show::history(context),
        ConfigCommand::ShowGeneration { generation } => {
            show::whole(context, &format!("/api/v1/config/history/{generation}"))
        }
        ConfigCommand::Rollback {
            generation,
            options,
        } => change::rollback(context, *generation, *options),
        ConfigCommand::Reload { dry_run, force } => change::reload(context, *dry_run, *force),
        ConfigCommand::Pending => show::pending(context),
    }
}
