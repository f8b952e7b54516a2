//! The environment of every command: the server, and the form of the output.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use millrace_admin::change::{self, ChangeReport};
use millrace_admin::client::{Answer, Client, Method, Order};
use millrace_admin::config;
use millrace_admin::status::{Problem, ProblemType};
use rustix::fs::Access;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::Failure;
use super::options::Options;
use super::report;

/// Items of a page of a list.
const PAGE: usize = 1000;

/// The server, and the form of the output.
pub struct Context<'a> {
    /// For queries. It has the token, if there is one, for servers that require it for reading.
    pub client: Client,
    options: &'a Options,
    /// Print the server's response unchanged.
    pub json: bool,
    /// The output is a terminal with colours.
    pub colour: bool,
}

/// How a change is made.
#[derive(Args, Clone, Copy, Default)]
#[command(next_help_heading = "Change")]
pub struct CommandChangeOptions {
    /// Check the change and show its effect, without making it.
    #[arg(long)]
    pub dry_run: bool,
    /// Write the change to the server's configuration file, too, so that it survives a restart.
    #[arg(long)]
    pub persist: bool,
    /// Make the change even if it takes away what is in use, without asking.
    #[arg(long)]
    pub force: bool,
}

impl<'a> Context<'a> {
    pub fn new(options: &'a Options, json: bool) -> Result<Self, Failure> {
        let client = options.client()?;
        // An unreadable token is reported when it is needed.
        let client = options.changing(&client).unwrap_or(client);
        Ok(Self {
            client,
            options,
            json,
            colour: shows_colours(),
        })
    }

    /// The server's configuration file, if it is on this host.
    pub fn config_file(&self) -> &Path {
        &self.options.config_file
    }

    /// The requester for changes.
    pub fn changing(&self) -> Result<Client, Failure> {
        self.options.changing(&self.client)
    }

    /// Sends an order; an answer without success is an error.
    pub fn ask(&self, order: &Order) -> Result<Answer, Failure> {
        let answer = match order.is_change() {
            true => self.changing()?.send(order)?,
            false => self.client.send(order)?,
        };
        match answer.is_success() {
            true => Ok(answer),
            false => Err(Failure::Refused(Box::new(answer))),
        }
    }

    pub fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(&Order::new(Method::Get, path))
    }

    /// The value at a path.
    pub fn value<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        Ok(self.get(path)?.value()?)
    }

    /// Prints the value at a path in the form of `view`, or unchanged for `--json`.
    pub fn show<T: DeserializeOwned>(
        &self,
        path: &str,
        view: impl FnOnce(T) -> String,
    ) -> Result<ExitCode, Failure> {
        let answer = self.get(path)?;
        self.print_answer(&answer, view)
    }

    /// Prints all pages of the list at a path as [`Context::show`] does. `name` is that of the list
    /// in the answer.
    pub fn show_list<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        view: impl FnOnce(T) -> String,
    ) -> Result<ExitCode, Failure> {
        let answer = self.whole_list(path, name)?;
        self.print_answer(&answer, view)
    }

    /// The list at a path, its pages in one answer.
    pub fn whole_list(&self, path: &str, name: &str) -> Result<Answer, Failure> {
        let of = |query: &str| self.get(&format!("{path}?limit={PAGE}{query}"));
        let mut first = of("")?;
        let mut whole: Value = first.value()?;
        let mut next = whole["next"].take();
        if next.is_null() {
            return Ok(first);
        }
        while !next.is_null() {
            let cursor = match &next {
                Value::String(text) => encoded(text),
                number => number.to_string(),
            };
            let mut page: Value = of(&format!("&cursor={cursor}"))?.value()?;
            next = page["next"].take();
            if let (Value::Array(all), Value::Array(more)) = (&mut whole[name], page[name].take()) {
                all.extend(more);
            }
        }
        first.body = whole.to_string();
        Ok(first)
    }

    /// Prints an answer in the form of `view`, or unchanged for `--json`.
    pub fn print_answer<T: DeserializeOwned>(
        &self,
        answer: &Answer,
        view: impl FnOnce(T) -> String,
    ) -> Result<ExitCode, Failure> {
        if self.json {
            return print_whole(&answer.body);
        }
        print(&view(answer.value()?))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Says in words that an action without an answer is done; nothing for `--json`.
    pub fn done(&self, words: &str) -> Result<ExitCode, Failure> {
        if !self.json {
            print(words)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The configuration in a format, and its tag.
    pub fn config(&self, format: &str) -> Result<(String, String), Failure> {
        let answer = self.get(&format!("/api/v1/config?format={format}"))?;
        match answer.tag {
            Some(tag) => Ok((answer.body, tag)),
            None => Err(Failure::no(
                "the server's configuration has no tag; this version of the server does not \
                 support changes",
            )),
        }
    }

    /// Makes a change of the configuration, and prints the result.
    pub fn change(&self, order: Order, options: CommandChangeOptions) -> Result<ExitCode, Failure> {
        let answer = self.make(order, options)?;
        self.print_report(&answer)
    }

    /// Makes a change. If it is to be persisted and the server may not write its file, the file is
    /// written here, if this user may.
    pub fn make(&self, order: Order, options: CommandChangeOptions) -> Result<Answer, Failure> {
        let mut force = options.force;
        let asked = self.ask_or_force(&with_options(order.clone(), options), &mut force);
        let refused = match asked {
            Err(Failure::Refused(answer)) if self.may_keep(&answer) => answer,
            done => return done,
        };
        if options.dry_run {
            return Err(Failure::Refused(refused));
        }
        // The server has checked that the file is the one it has read.
        let alone = CommandChangeOptions {
            persist: false,
            ..options
        };
        let mut answer = self.ask_or_force(&with_options(order, alone), &mut force)?;
        let mut report: Value = answer.value()?;
        let (text, _) = self.config("yaml")?;
        let file = &self.options.config_file;
        let kept = match config::parse(&text, "the server's configuration") {
            Ok(config) => change::keep(file, &config).map_err(|error| error.to_string()),
            Err(errors) => Err(errors.to_string()),
        };
        if let Err(error) = kept {
            let file = file.display();
            return Err(Failure::no(format!(
                "the change is in force, but not written to the file, as {file} cannot be written: \
                 {error}"
            )));
        }
        // The server reads the file that was written here.
        self.ask(&Order::new(Method::Post, "/api/v1/config/reload"))?;
        report["persisted"] = Value::Bool(true);
        answer.body = report.to_string();
        Ok(answer)
    }

    /// Sends an order that may take away what is in use. If the server refuses it for that, a user
    /// at a terminal is asked, and `force` is set if the answer is yes.
    pub fn ask_or_force(&self, order: &Order, force: &mut bool) -> Result<Answer, Failure> {
        if !*force {
            let refused = match self.ask(order) {
                Err(Failure::Refused(answer)) if is_in_use(&answer) => answer,
                done => return done,
            };
            let refused = Failure::Refused(refused);
            if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
                return Err(refused);
            }
            eprintln!("{refused}");
            if choice("take it away all the same? [y]es, [n]o: ", "yn")? != 'y' {
                return Err(Failure::no("nothing was changed"));
            }
            *force = true;
        }
        self.ask(&order.clone().with_query("force", "true"))
    }

    /// Whether the server refuses because it may not write the file that this user may write. Over
    /// TCP the server could be on another host.
    fn may_keep(&self, answer: &Answer) -> bool {
        let file = &self.options.config_file;
        let named = |problem: Problem| {
            let start = format!("{}: ", file.display());
            problem.kind == ProblemType::FileDenied.uri() && problem.detail.starts_with(&start)
        };
        let folder = file.parent().unwrap_or(file);
        self.client.is_on_socket()
            && answer.problem().is_some_and(named)
            && rustix::fs::access(folder, Access::WRITE_OK).is_ok()
    }

    pub fn print_report(&self, answer: &Answer) -> Result<ExitCode, Failure> {
        self.print_answer(answer, |report: ChangeReport| {
            report::report(&report, self.colour)
        })
    }
}

fn is_in_use(answer: &Answer) -> bool {
    answer
        .problem()
        .is_some_and(|problem| problem.kind == ProblemType::InUse.uri())
}

/// Asks until one of the letters is entered; the last one at the end of the input.
pub fn choice(question: &str, letters: &str) -> Result<char, Failure> {
    let last = letters.chars().last().unwrap_or('n');
    let mut lines = io::stdin().lock();
    loop {
        eprint!("{question}");
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            eprintln!();
            return Ok(last);
        }
        let letter = line.trim().to_lowercase().chars().next();
        if let Some(letter) = letter.filter(|letter| letters.contains(*letter)) {
            return Ok(letter);
        }
    }
}

/// An order with the parameters of the options but `force`.
pub fn with_options(mut order: Order, options: CommandChangeOptions) -> Order {
    for (name, set) in [("dry_run", options.dry_run), ("persist", options.persist)] {
        if set {
            order = order.with_query(name, "true");
        }
    }
    order
}

/// Percent-encodes text as a part of a path.
pub fn encoded(part: &str) -> String {
    let mut out = String::new();
    for byte in part.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' | b':' => out.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Prints text, with a newline at its end.
pub fn print_whole(text: &str) -> Result<ExitCode, Failure> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    print(&format!("{text}{end}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes to the standard output; a reader that has closed the pipe (`| head`) is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Whether the standard output is a terminal with colours enabled (`NO_COLOR` not set).
fn shows_colours() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    io::stdout().is_terminal() && !set("NO_COLOR") && !dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths_are_encoded() {
        assert_eq!(encoded("127.0.0.1:20049"), "127.0.0.1:20049");
        assert_eq!(encoded("[::1]:1/?#%"), "%5B::1%5D:1%2F%3F%23%25");
    }
}
