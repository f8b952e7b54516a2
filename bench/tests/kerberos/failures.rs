//! What a user is told when there is no context, or none any more.

use millrace_admin::control::Control;
use millrace_bench::client::{self, Client};

use super::{client, client_for, in_realm, service, start, with_tickets};

fn refused(client: &Client) -> String {
    let pool = client::pool(16 << 20).expect("memory");
    let session = client.session(&pool, client.settings(4));
    format!("{:#}", session.map(drop).expect_err("no session"))
}

fn expect_words(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

#[test]
fn without_ticket_the_user_is_told_to_get_one() {
    let test = "failures::without_ticket_the_user_is_told_to_get_one";
    in_realm(test, &super::RealmOptions::default(), |realm| {
        let service = service(realm, "krb5");
        expect_words(
            &refused(&client(&service, "krb5")),
            &["--security", "kinit"],
        );
    });
}

#[test]
fn services_that_the_kdc_or_the_server_does_not_know_are_named() {
    let test = "failures::services_that_the_kdc_or_the_server_does_not_know_are_named";
    with_tickets(test, |realm| {
        let served = service(realm, "krb5");
        let unknown = client_for(&served, "krb5", "nfs@other.test");
        expect_words(&refused(&unknown), &["nfs@other.test", "KDC"]);
        realm.admin("addprinc -randkey nfs/other.test");
        let foreign = client_for(&served, "krb5", "nfs/other.test");
        expect_words(&refused(&foreign), &["the server refuses", "log"]);
        let plain = start("sys", "");
        expect_words(&refused(&client(&plain, "krb5")), &["no Kerberos", "`gss`"]);
    });
}

#[test]
fn gss_hdl_01_a_context_that_was_flushed_is_an_error_that_says_so() {
    let test = "failures::gss_hdl_01_a_context_that_was_flushed_is_an_error_that_says_so";
    with_tickets(test, |realm| {
        let service = service(realm, "krb5i");
        let client = client(&service, "krb5i");
        let pool = client::pool(16 << 20).expect("memory");
        let mut session = client.session(&pool, client.settings(4)).expect("connects");
        session.null().expect("answered");
        let control = service.control();
        let flushed = control.gss().expect("Kerberos").flush(None);
        assert_eq!(flushed, 1);
        let error = session.null().expect_err("it is gone").to_string();
        expect_words(&error, &["connect again", "RPCSEC_GSS_CREDPROBLEM"]);
    });
}
