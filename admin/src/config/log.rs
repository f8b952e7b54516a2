//! The filter of the log, checked more strictly than by the library: to the library any word is the
//! name of a module, and `inof` is a filter that suppresses everything.

/// The levels, as words and as numbers.
const LEVELS: [&str; 12] = [
    "off", "error", "warn", "info", "debug", "trace", "0", "1", "2", "3", "4", "5",
];

/// Prefixes of the names of modules that log: our crates, the audit records, and libraries.
const MODULES: [&str; 19] = [
    "audit",
    "axum",
    "hyper",
    "hyper_util",
    "millrace",
    "millrace_admin",
    "millrace_bench",
    "millrace_iwarp",
    "millrace_mempool",
    "millrace_reactor",
    "millrace_store",
    "millrace_wire",
    "millraced",
    "mio",
    "rustls",
    "tokio",
    "tokio_rustls",
    "tower",
    "want",
];

/// Checks every part of a filter.
///
/// # Errors
///
/// The first invalid part, and the accepted values.
pub fn check(filter: &str) -> Result<(), String> {
    parts(filter)
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .try_for_each(part)
}

fn part(part: &str) -> Result<(), String> {
    if is_level(part) {
        return Ok(());
    }
    let shown = part.escape_debug();
    let target = match part.rsplit_once('=') {
        // Inside brackets it is the value of a field.
        Some((target, level)) if !level.contains([']', '}']) => {
            if !is_level(level.trim()) {
                return Err(format!(
                    "`{}` of `{shown}` is no level; accepted are off, error, warn, info, debug \
                     and trace",
                    level.trim().escape_debug()
                ));
            }
            target
        }
        _ => part,
    };
    let target = target.split('[').next().unwrap_or_default().trim();
    let root = target.split("::").next().unwrap_or_default();
    match target.is_empty() || MODULES.contains(&root) {
        true => Ok(()),
        false => Err(format!(
            "`{shown}` is neither a level (off, error, warn, info, debug, trace) nor a module of \
             this server, such as millrace::nfs3, millrace_store or audit"
        )),
    }
}

fn is_level(word: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
}

/// The parts between commas outside of brackets.
fn parts(filter: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    filter.split(move |c| {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_modules_are_known() {
        for good in [
            "info",
            "INFO",
            "3",
            "info,millrace=debug",
            "warn, millrace::nfs3=trace ,audit=off,",
            "info,millrace_store::posix=debug,hyper=warn",
            "info,[span]=debug",
            "info,millrace[span{peer=a,b=c}]=debug",
            "millrace",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, word) in [
            ("inof", "`inof` is neither a level"),
            ("info,millrase=debug", "`millrase=debug` is neither"),
            (
                "info,millrace=debgu",
                "`debgu` of `millrace=debgu` is no level",
            ),
            ("info,millrace=", "is no level"),
            ("info,mill=debug", "neither"),
            ("inof[span]=debug", "neither"),
            ("no such level", "neither"),
        ] {
            let told = check(bad).unwrap_err();
            assert!(told.contains(word), "{bad}: {told}");
        }
    }
}
