//! The section `gateways`.

use super::{accept, refuse_at};

#[test]
fn gateways_have_names_a_folder_and_what_makes_handles_the_same() {
    accept(
        "gateways: { name: gateway-1, directory: /g }\nhandle_secret: /h\nstate_directory: /s\n",
    );
    let sharing = "handle_secret: /h\nstate_directory: /s\n\
        gateways: { name: a, directory: /g, share_reservations: on, shared_replies: on }\n";
    let read = |text: &str| {
        let gateways = accept(text).gateways.unwrap();
        (
            gateways.share_reservations.is_on(),
            gateways.shared_replies.is_on(),
        )
    };
    assert_eq!(read(sharing), (true, true));
    assert_eq!(
        read(&sharing.replace(", share_reservations: on", "")),
        (false, true)
    );
    assert_eq!(
        read(&sharing.replace(", shared_replies: on", "")),
        (true, false)
    );
    for (text, line, column, path, words) in [
        (
            "gateways: { name: a_b, directory: /g }\nhandle_secret: /h\nstate_directory: /s\n",
            1,
            19,
            "gateways.name",
            "lower-case letters",
        ),
        (
            "gateways: { name: a, directory: g }\nhandle_secret: /h\nstate_directory: /s\n",
            1,
            33,
            "gateways.directory",
            "relative",
        ),
        (
            "gateways: { name: a, directory: /g }\nstate_directory: /s\n",
            1,
            1,
            "gateways",
            "the same `handle_secret`",
        ),
        (
            "gateways: { name: a, directory: /g }\nhandle_secret: /h\n",
            1,
            1,
            "gateways",
            "`state_directory` of its own",
        ),
        (
            "gateways: { name: a, directory: /g }\nhandle_secret: /h\nstate_directory: /s\n\
             nfs4: { minor_versions: [] }\n",
            1,
            1,
            "gateways",
            "version 4 is not served",
        ),
    ] {
        refuse_at(text, line, column, path, &[words]);
    }
}
