//! `token`: makes tokens with a role.

use std::fs::File;
use std::io::Read;
use std::process::ExitCode;

use clap::Subcommand;
use millrace_admin::roles::{Role, hash, is_name};
use serde_json::json;

use super::context::{print, print_whole};
use super::failure::Failure;

const NEW_HELP: &str = "\
Examples:
  millracectl token new monitoring --role read
  millracectl --json token new ci --role operate | jq -r .token > ci.token

The token is printed once and kept nowhere. Add the line to the file that `admin.roles_file` of the
server names; it has a hash of the token only. Roles: read (with `admin.read_token: required`),
operate (also drain, ban, evict, end and revoke), admin (also change the configuration, and capture).
The name stands in the audit trail.";

/// The commands on tokens.
#[derive(Subcommand)]
pub enum TokenCommand {
    /// Make a token, and the line for the server's file of roles.
    #[command(after_help = NEW_HELP)]
    New {
        /// Its name, in records of what is done with it.
        name: String,
        /// read, operate or admin.
        #[arg(long)]
        role: Role,
    },
}

/// Runs the command, without a server.
pub fn run(command: &TokenCommand, json: bool) -> Result<ExitCode, Failure> {
    let TokenCommand::New { name, role } = command;
    if !is_name(name) {
        return Err(Failure::usage(
            "a name has 1 to 64 letters, digits, and - . _ @",
        ));
    }
    let mut random = [0_u8; 32];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let line = format!("token {name} {role} {}", hash(&token));
    if json {
        return print_whole(&json!({ "token": token, "line": line }).to_string());
    }
    print(&format!(
        "{token}\n\nThis is the token; it is not shown again. The line for admin.roles_file:\n\n{line}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}
