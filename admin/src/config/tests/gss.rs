//! Kerberos, and the security of exports.

use super::super::*;
use super::rules::with_export;
use super::{accept, refuse_at};

#[test]
fn security_is_a_list_or_the_flavor_of_former_files() {
    use ExportSecurity::{Krb5, Krb5i, Krb5p, None, Sys};

    let security = |line: &str| {
        let text = format!(
            "gss: {{ keytab: /etc/keytab }}\nexports:\n- path: /s\n  \
             store: {{ kind: memory, size: 1GiB }}\n{line}"
        );
        let config = accept(&text);
        assert_eq!(accept(&to_yaml(&config)), config);
        config.exports[0].security.clone()
    };
    assert_eq!(security(""), [Sys, None]);
    assert_eq!(security("  flavor: none\n"), [Sys, None]);
    assert_eq!(security("  flavor: sys\n"), [Sys]);
    let all = [Krb5p, Krb5i, Krb5, Sys];
    assert_eq!(security("  security: [krb5p, krb5i, krb5, sys]\n"), all);
}

#[test]
fn gss_seq_06_gss_rdma_06_notes_name_what_hinders_kerberos() {
    let notes = |lines: &str| {
        let text = format!("gss: {{ keytab: /etc/keytab }}\n{lines}");
        let notes = accept(&text).notes();
        notes
            .into_iter()
            .filter(|note| note.contains("contexts") || note.contains("gss."))
            .collect::<Vec<_>>()
    };
    let fabric = "fabric: [{ provider: iwarp, listen: '192.0.2.1:20049' }]\n";
    assert_eq!(
        notes(&format!("{fabric}rpc: {{ listen: '0.0.0.0:2049' }}\n")),
        [""; 0]
    );
    assert_eq!(
        notes(&format!("{fabric}rpc: {{ listen: '192.0.2.1:2049' }}\n")),
        [""; 0]
    );
    for listen in ["127.0.0.1:2049", "192.0.2.2:2049", "0.0.0.0:2050"] {
        let found = notes(&format!("{fabric}rpc: {{ listen: '{listen}' }}\n"));
        assert!(found[0].starts_with("rpc.listen: "), "{listen} {found:?}");
    }
    let credits = "rpc: { listen: '0.0.0.0:2049' }\nflow: { credits: 129 }\n";
    let found = notes(credits);
    assert!(
        found[0].starts_with("gss.window: ") && found[0].contains("2064"),
        "{found:?}"
    );
}

#[test]
fn security_that_cannot_be_served_is_refused() {
    for (lines, line, column, key, words) in [
        ("  security: [sys, krb5]\n", 4, 19, "security[1]", "`gss`"),
        (
            "  security: [sys, sys]\n",
            4,
            19,
            "security[1]",
            "sys twice",
        ),
        ("  security: []\n", 4, 13, "security", "empty"),
        ("  security: [kerberos]\n", 4, 14, "security[0]", "`krb5p`"),
        ("  flavor: gss\n", 4, 11, "flavor", "`krb5p`"),
    ] {
        let key = format!("exports[0].{key}");
        refuse_at(&with_export(lines), line, column, &key, &[words]);
    }
    for (lines, key, words) in [
        ("gss: { keytab: keys }\n", "gss.keytab", "absolute"),
        (
            "gss: { principal: 'nfs/host' }\n",
            "gss.principal",
            "nfs@HOST",
        ),
        ("gss: { enctypes: [] }\n", "gss.enctypes", "no encryption"),
        ("gss: { enctypes: [des] }\n", "gss.enctypes", "aes256-sha2"),
        ("gss: { window: 127 }\n", "gss.window", "128 to 65536"),
        ("gss: { lifetime: 59s }\n", "gss.lifetime", "60s"),
        ("gss: { token_max: 1KiB }\n", "gss.token_max", "4096 to"),
    ] {
        let errors = parse(lines, "t.yaml").expect_err(lines).to_string();
        assert!(
            errors.contains(key) && errors.contains(words),
            "{lines}: {errors}"
        );
    }
}
