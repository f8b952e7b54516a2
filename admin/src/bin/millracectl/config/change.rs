//! Changes of the configuration, each conditional on the state read before.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use millrace_admin::change::Generation;
use millrace_admin::client::{Method, Order};
use millrace_admin::config::{self, Config, TEXT_MAX, value_of_text};
use serde_json::Value;

use super::keys::{Key, merge_patch};
use crate::context::{CommandChangeOptions, Context};
use crate::failure::Failure;

/// The media type of a patch (RFC 7396 section 4).
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Changes keys, all of them at once.
pub fn set(
    context: &Context<'_>,
    changes: &[String],
    options: CommandChangeOptions,
) -> Result<ExitCode, Failure> {
    let mut wanted = Vec::new();
    for change in changes {
        let (key, value) = change.split_once('=').ok_or_else(|| {
            Failure::usage(format!(
                "`{change}` has no =; write KEY=VALUE, such as log=debug"
            ))
        })?;
        wanted.push((
            Key::parse(key).map_err(Failure::Usage)?,
            value_of_text(value),
        ));
    }
    edited(context, options, |config| {
        for (key, value) in wanted {
            key.set(config, value)?;
        }
        Ok(())
    })
}

/// Changes the configuration by a function, with a patch of the differences.
pub fn edited(
    context: &Context<'_>,
    options: CommandChangeOptions,
    edit: impl FnOnce(&mut Value) -> Result<(), String>,
) -> Result<ExitCode, Failure> {
    let (text, tag) = context.config("json")?;
    let before: Value = serde_json::from_str(&text)?;
    let mut after = before.clone();
    edit(&mut after).map_err(Failure::No)?;
    let patch = merge_patch(&before, &after).unwrap_or_else(|| serde_json::json!({}));
    let order = Order::new(Method::Patch, "/api/v1/config")
        .with_body(MERGE_PATCH, patch.to_string())
        .if_match(tag);
    context.change(order, options)
}

/// Applies the configuration of a file.
pub fn apply(
    context: &Context<'_>,
    file: &Path,
    options: CommandChangeOptions,
) -> Result<ExitCode, Failure> {
    let (text, _) = read(file)?;
    let (_, tag) = context.config("yaml")?;
    context.change(put(text, tag), options)
}

/// The order that replaces the configuration with this tag.
pub fn put(yaml: String, tag: String) -> Order {
    Order::new(Method::Put, "/api/v1/config")
        .with_body("application/yaml", yaml)
        .if_match(tag)
}

pub fn rollback(
    context: &Context<'_>,
    generation: Generation,
    options: CommandChangeOptions,
) -> Result<ExitCode, Failure> {
    let (_, tag) = context.config("json")?;
    let path = format!("/api/v1/config/rollback/{generation}");
    context.change(Order::new(Method::Post, path).if_match(tag), options)
}

/// Changes nothing, and writes the file.
pub fn save(context: &Context<'_>) -> Result<ExitCode, Failure> {
    let options = CommandChangeOptions {
        persist: true,
        ..CommandChangeOptions::default()
    };
    edited(context, options, |_| Ok(()))
}

pub fn reload(context: &Context<'_>, dry_run: bool, force: bool) -> Result<ExitCode, Failure> {
    let order = Order::new(Method::Post, "/api/v1/config/reload");
    let options = CommandChangeOptions {
        dry_run,
        persist: false,
        force,
    };
    context.change(order, options)
}

/// The text of a file and its configuration; errors have line numbers.
pub fn read(file: &Path) -> Result<(String, Config), Failure> {
    let name = match file.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => file.display().to_string(),
    };
    let unreadable = |error| Failure::usage(format!("{name}: cannot be read: {error}"));
    let mut text = String::new();
    let most = TEXT_MAX as u64 + 1;
    match file.to_str() {
        Some("-") => std::io::stdin().take(most).read_to_string(&mut text),
        _ => std::fs::File::open(file).and_then(|file| file.take(most).read_to_string(&mut text)),
    }
    .map_err(unreadable)?;
    let config = config::parse(&text, &name).map_err(|errors| Failure::no(errors.to_string()))?;
    Ok((text, config))
}
