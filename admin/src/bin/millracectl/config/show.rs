//! Display of current, earlier and proposed configurations.

use std::path::Path;
use std::process::ExitCode;

use millrace_admin::change::{ChangeHistory, Pending};
use millrace_admin::config::{self, Config, text_of_value};
use serde_json::Value;

use super::change::read;
use super::keys::Key;
use crate::context::{Context, print, print_whole};
use crate::failure::Failure;
use crate::report;

/// The configuration at a path.
pub fn whole(context: &Context<'_>, path: &str) -> Result<ExitCode, Failure> {
    let format = if context.json { "json" } else { "yaml" };
    print_whole(&context.get(&format!("{path}?format={format}"))?.body)
}

/// One key of it.
pub fn key(context: &Context<'_>, key: &str) -> Result<ExitCode, Failure> {
    let key = Key::parse(key).map_err(Failure::Usage)?;
    let config: Value = context.value("/api/v1/config?format=json")?;
    let value = key.get(&config).map_err(Failure::No)?;
    match context.json {
        true => print_whole(&value.to_string()),
        false => print_whole(&text_of_value(value)),
    }
}

/// What of the server's configuration is not in its file.
pub fn unsaved(context: &Context<'_>) -> Result<ExitCode, Failure> {
    let pending: Pending = context.value("/api/v1/config/pending")?;
    let Some(file) = pending.file else {
        return Err(Failure::no(
            "the server was started without a configuration file, or is of an older version; name a file",
        ));
    };
    match context.json {
        true => print_whole(&serde_json::to_string(&file)?),
        false => {
            print(&report::unsaved(&file, context.colour))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The changes that a file would make.
pub fn difference(context: &Context<'_>, file: &Path) -> Result<ExitCode, Failure> {
    let (_, wanted) = read(file)?;
    let present: Config = context.value("/api/v1/config?format=json")?;
    let changes = config::diff(&present, &wanted);
    if context.json {
        return print_whole(&serde_json::json!({ "changes": changes }).to_string());
    }
    match changes.is_empty() {
        true => print("nothing differs\n")?,
        false => print(&report::changes(&changes, context.colour))?,
    }
    Ok(ExitCode::SUCCESS)
}

pub fn history(context: &Context<'_>) -> Result<ExitCode, Failure> {
    context.show("/api/v1/config/history", |all: ChangeHistory| {
        report::history(&all.history, context.colour)
    })
}

pub fn pending(context: &Context<'_>) -> Result<ExitCode, Failure> {
    context.show("/api/v1/config/pending", |all: Pending| {
        report::pending(&all, context.colour)
    })
}
