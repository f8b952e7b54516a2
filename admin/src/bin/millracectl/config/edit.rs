//! `config edit`: the configuration in an editor.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_admin::change::ChangeReport;
use millrace_admin::config;
use signal_hook::consts::{SIGINT, SIGQUIT};
use signal_hook::flag;
use tempfile::NamedTempFile;

use super::change::put;
use crate::context::{CommandChangeOptions, Context, choice, print, with_options};
use crate::failure::Failure;
use crate::report;

/// Opens the configuration in an editor, checks the saved text, shows the changes, asks, and
/// applies it.
pub fn edit(
    context: &Context<'_>,
    options: CommandChangeOptions,
    yes: bool,
) -> Result<ExitCode, Failure> {
    let (before, tag) = context.config("yaml")?;
    // It is readable by its owner only (mode 0600), and removed when there is nothing to keep.
    let mut file = tempfile::Builder::new()
        .prefix("millrace-config-")
        .suffix(".yaml")
        .tempfile()
        .map_err(|error| Failure::usage(format!("cannot make a temporary file: {error}")))?;
    let interrupt_guard = InterruptGuard::new()?;
    file.write_all(before.as_bytes())?;
    file.flush()?;
    loop {
        open_editor(file.path(), &interrupt_guard)?;
        let text = match read_back(file.path()) {
            Ok(text) => text,
            Err(error) => match again(&error)? {
                true => continue,
                false => return Err(kept(file, "not changed")),
            },
        };
        if text == before || text.trim().is_empty() {
            print("no edits, nothing is changed\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        let name = file.path().display().to_string();
        if let Err(errors) = config::parse(&text, &name) {
            match again(&errors.to_string())? {
                true => continue,
                false => return Err(kept(file, "not changed")),
            }
        }
        let dry = CommandChangeOptions {
            dry_run: true,
            ..options
        };
        let tried = match context.ask(&with_options(put(text.clone(), tag.clone()), dry)) {
            Ok(tried) => tried,
            // Further editing does not help if the configuration was changed in the meantime.
            Err(failure) if is_stale(&failure) => return Err(kept(file, &failure.to_string())),
            Err(failure) => match again(&failure.to_string())? {
                true => continue,
                false => return Err(kept(file, "not changed")),
            },
        };
        if options.dry_run {
            return context.print_report(&tried);
        }
        let expected: ChangeReport = tried.value()?;
        if !yes {
            // The JSON response is the last thing printed, and the only one.
            eprint!("{}", would(&expected, context.colour));
            match choice("make this change? [y]es, [e]dit again, [n]o: ", "yen")? {
                'y' => {}
                'e' => continue,
                _ => return Err(kept(file, "not changed")),
            }
        }
        return match context.change(put(text, tag), options) {
            Ok(code) => Ok(code),
            Err(failure) => Err(kept(file, &failure.to_string())),
        };
    }
}

/// The effect of the change, from its dry run.
fn would(expected: &ChangeReport, colour: bool) -> String {
    let mut text = match expected.changes.is_empty() {
        true => "only comments and order would change\n".to_owned(),
        false => report::changes(&expected.changes, colour),
    };
    text.push_str(&report::notes(expected));
    text
}

fn is_stale(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(answer) if answer.status == 412)
}

/// Runs the editor on a file. `VISUAL` or `EDITOR` may contain arguments.
fn open_editor(file: &Path, interrupt_guard: &InterruptGuard) -> Result<(), Failure> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR"));
    let editor = editor.unwrap_or_else(|| "vi".into());
    let shown = editor.to_string_lossy().into_owned();
    let mut script = editor.as_bytes().to_vec();
    script.extend_from_slice(b" \"$1\"");
    let script = <std::ffi::OsStr as OsStrExt>::from_bytes(&script);
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).args([Path::new("sh"), file]);
    let status = interrupt_guard.during(|| command.stdin(Stdio::inherit()).status());
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::usage(format!(
            "the editor `{shown}` ended with {status}; nothing is changed"
        ))),
        Err(error) => Err(Failure::usage(format!("cannot start `{shown}`: {error}"))),
    }
}

/// Ctrl-C in an editor is for the editor, but reaches this program, too.
struct InterruptGuard {
    interruptible: Arc<AtomicBool>,
}

impl InterruptGuard {
    fn new() -> Result<Self, Failure> {
        let interruptible = Arc::new(AtomicBool::new(true));
        for signal in [SIGINT, SIGQUIT] {
            flag::register_conditional_default(signal, Arc::clone(&interruptible))?;
        }
        Ok(Self { interruptible })
    }

    /// Runs `work` without being interrupted.
    fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.interruptible.store(false, Ordering::SeqCst);
        let done = work();
        self.interruptible.store(true, Ordering::SeqCst);
        done
    }
}

/// The saved text. Editors replace files, so it is read by path.
fn read_back(file: &Path) -> Result<String, String> {
    let unreadable = |error: io::Error| format!("{}: cannot be read: {error}", file.display());
    let length = fs::metadata(file).map_err(unreadable)?.len();
    if length > config::TEXT_MAX as u64 {
        return Err(format!(
            "{}: longer than {} bytes",
            file.display(),
            config::TEXT_MAX
        ));
    }
    fs::read_to_string(file).map_err(unreadable)
}

/// Prints the error and asks whether to open the editor again.
fn again(wrong: &str) -> Result<bool, Failure> {
    eprintln!("{wrong}");
    Ok(choice("[e]dit again, [n]o more: ", "en")? == 'e')
}

/// Keeps the edited file, and reports its path.
fn kept(file: NamedTempFile, reason: &str) -> Failure {
    match file.keep() {
        Ok((_, path)) => Failure::no(format!(
            "{reason}\n  your edited file is {path}; use it with `millracectl config diff` and \
             `config apply`",
            path = path.display()
        )),
        Err(error) => Failure::no(format!("{reason}\n  and your edits are lost: {error}")),
    }
}
