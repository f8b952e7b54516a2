//! How connections end.

use millrace_reactor::fabric::verbs::VerbsConfig;

use crate::pair::ending;
use crate::{address, alone, plain, side};

#[test]
#[ignore = "needs an RDMA device"]
fn a_close_sends_what_is_posted_first() {
    let _alone = alone();
    ending::a_close_sends_what_is_posted_first(plain());
}

#[test]
#[ignore = "needs an RDMA device"]
fn an_abort_flushes_posted_work() {
    let _alone = alone();
    ending::an_abort_flushes_posted_work(plain());
}

#[test]
#[ignore = "needs an RDMA device"]
fn a_rejection_reaches_the_connecting_side() {
    let _alone = alone();
    let [client, server] = [(); 2].map(|()| side(VerbsConfig::default()));
    ending::a_rejection_reaches_the_connecting_side(client, server, address());
}

#[test]
#[ignore = "needs an RDMA device"]
fn connections_can_be_handed_to_another_provider() {
    let _alone = alone();
    let sides = [(); 3].map(|()| side(VerbsConfig::default()));
    ending::connections_can_be_handed_to_another_provider(sides, address());
}
