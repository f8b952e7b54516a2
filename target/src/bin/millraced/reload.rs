//! SIGHUP: reloads the configuration file and the certificates.

use std::sync::Arc;

use millrace_admin::api::Certificates;
use millrace_admin::change::{Author, ChangeError, ChangeRequest, ConfigStore, Edit};

/// Reads the file and applies the parts that need no restart. An invalid file changes nothing; the
/// log names the lines. The certificates are reloaded in any case, and the previous ones stay if
/// the new ones cannot be used. Returns the resulting status.
pub fn reload(config_store: &Arc<ConfigStore>, certificates: Option<&Certificates>) -> String {
    match certificates.map(Certificates::reload) {
        Some(Ok(())) => tracing::info!("the certificates of the management plane were reloaded"),
        Some(Err(error)) => tracing::error!("{error}; the previous certificates stay in use"),
        None => {}
    }
    let request = ChangeRequest {
        edit: Edit::Reload,
        expected: None,
        author: Author {
            name: "signal".to_owned(),
            address: None,
        },
        dry_run: false,
        persist: false,
        force: false,
    };
    match config_store.change(request) {
        Ok(report) => {
            for note in &report.notes {
                tracing::warn!("{note}");
            }
            for key in &report.restart_required {
                tracing::warn!("{}: {} waits for a restart", key.path, key.after);
            }
            tracing::info!(
                generation = report.generation,
                keys = report.changes.len(),
                "the configuration was reloaded"
            );
            let generation = report.generation;
            match report.restart_required.len() {
                0 => format!("serving generation {generation} of the configuration"),
                count => format!(
                    "serving generation {generation} of the configuration; keys that wait for a \
                     restart: {count}"
                ),
            }
        }
        Err(error) => {
            if let ChangeError::Invalid(fields) = &error {
                for field in fields {
                    let (key, message) = (&field.path, &field.message);
                    tracing::error!(key, "{}", message.escape_debug());
                }
            }
            if let ChangeError::InUse(uses) = &error {
                for one in uses {
                    let clients = one.clients.join(", ");
                    tracing::error!(resource = one.resource, clients, "in use: {}", one.message);
                }
                tracing::error!("to take it away all the same: millracectl config reload --force");
            }
            tracing::error!(%error, "the configuration was not reloaded; the previous one stays in \
                force");
            "serving the previous configuration; the last reload was refused, see the log"
                .to_owned()
        }
    }
}
