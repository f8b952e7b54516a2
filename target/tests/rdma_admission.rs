//! RDMA connections of addresses that no export admits.

mod support;

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use support::message::{PROGRAM, plain, rpc, word};
use support::raw::{Options, Stated, World};
use support::script::Script;

/// The network that the only export admits, as the first three bytes.
type Network = Rc<Cell<[u8; 3]>>;

fn world() -> (World<Script>, Network) {
    let world = World::new(Script::default(), Options::default());
    let network = Network::new(Cell::new([10, 0, 0]));
    let admitted = Rc::clone(&network);
    world.shared.admit_by(move |address| match address {
        std::net::IpAddr::V4(address) => address.octets()[..3] == admitted.get(),
        std::net::IpAddr::V6(_) => false,
    });
    (world, network)
}

fn at(network: u8, host: u8) -> Stated {
    Stated {
        source: Ipv4Addr::new(10, 0, network, host),
        receives: 4,
        ..Stated::default()
    }
}

/// Calls and wishes for so many credits; returns those granted.
#[track_caller]
fn granted(world: &mut World<Script>, client: usize, wish: u32) -> u32 {
    let mut message = plain(&rpc(1, PROGRAM, &[]));
    message[8..12].copy_from_slice(&wish.to_be_bytes());
    word(&world.exchange(client, &message), 2)
}

/// How many of these stand.
fn standing(world: &World<Script>, clients: &[usize]) -> usize {
    let stands = |&&client: &&usize| {
        let client = &world.clients[client];
        client.established && client.ended.is_none()
    };
    clients.iter().filter(stands).count()
}

#[test]
fn addresses_that_no_export_admits_have_few_connections_for_a_short_time() {
    let (mut world, _) = world();
    let own: Vec<usize> = (0..5).map(|_| world.connect_with(at(9, 1))).collect();
    assert_eq!(standing(&world, &own), 2, "of one address");
    let others: Vec<usize> = (2..100)
        .map(|host| world.connect_with(at(9, host)))
        .collect();
    assert_eq!(standing(&world, &others), 6, "eight in all");
    // Clients that are admitted find room all the same, and keep it.
    let admitted: Vec<usize> = (1..20)
        .map(|host| world.connect_with(at(0, host)))
        .collect();
    assert_eq!(standing(&world, &admitted), 19);
    world.pass(Duration::from_secs(9));
    assert_eq!(standing(&world, &own), 2);
    world.pass(Duration::from_secs(1));
    assert_eq!(standing(&world, &own) + standing(&world, &others), 0);
    assert_eq!(standing(&world, &admitted), 19);
    // Their places are free for others.
    let next = world.connect_with(at(9, 200));
    assert_eq!(standing(&world, &[next]), 1);
}

#[test]
fn they_have_no_receives_beyond_the_first_until_an_export_admits_them() {
    let (mut world, network) = world();
    let known = world.connect_with(at(0, 1));
    let unknown = world.connect_with(at(9, 1));
    for _ in 0..40 {
        granted(&mut world, known, 32);
        assert_eq!(granted(&mut world, unknown, 32), 1);
    }
    assert_eq!(granted(&mut world, known, 32), 32);
    let of = |host: [u8; 4]| {
        let all = world.connections();
        let mut all = all.iter();
        let one = all.find(|one| one.peer().address == Ipv4Addr::from(host));
        one.unwrap().posted()
    };
    assert_eq!(of([10, 0, 9, 1]), 3);
    assert!(of([10, 0, 0, 1]) > 32);
    // Exports change: who is admitted from now on goes on with what it has, and gets more, and
    // whose export is gone keeps its connection.
    network.set([10, 0, 9]);
    world.pass(Duration::from_secs(1));
    for _ in 0..40 {
        granted(&mut world, unknown, 32);
    }
    assert_eq!(granted(&mut world, unknown, 32), 32);
    world.pass(Duration::from_secs(60));
    assert_eq!(standing(&world, &[known, unknown]), 2);
    granted(&mut world, known, 32);
}
