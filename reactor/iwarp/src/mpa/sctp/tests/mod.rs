//! Tests of the session control on SCTP, named by the rule.

mod depths;
mod messages;
mod orders;
mod random;
mod rejections;

use std::time::Instant;

use super::*;
use crate::mpa::{
    AcceptParameters, ConnectionData, InitiatorConfig, ResponderConfig, RtrKind, RtrKinds,
};

/// Bytes from hexadecimal digits, blanks ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .collect();
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

fn client_server(ird: u16, ord: u16) -> ConnectionData {
    ConnectionData {
        ird,
        ord,
        ..ConnectionData::OPEN
    }
}

fn peer_to_peer(rtr: RtrKinds, ird: u16, ord: u16) -> ConnectionData {
    ConnectionData {
        peer_to_peer: true,
        rtr,
        ..client_server(ird, ord)
    }
}

fn message(sequence: u16, function: Function, data: Option<ConnectionData>) -> ControlMessage {
    ControlMessage {
        sequence,
        function,
        connection_data: data,
        private_data: Vec::new(),
    }
}

fn control(message: &ControlMessage) -> Vec<u8> {
    message.encode().unwrap()
}

/// Settings that ask for the exchange of read depths.
fn exchanging(ird: u16, ord: u16) -> InitiatorConfig {
    InitiatorConfig {
        exchange_depths: true,
        ird,
        ord,
        ..InitiatorConfig::default()
    }
}

fn responding(ird: u16, ord: u16) -> ResponderConfig {
    ResponderConfig {
        ird,
        ord,
        ..ResponderConfig::default()
    }
}

fn accepting(config: &ResponderConfig) -> AcceptParameters {
    AcceptParameters {
        ird: config.ird,
        ord: config.ord,
        private_data: Vec::new(),
    }
}

/// Hands a control message over at once.
fn give(session: &mut Session, message: &ControlMessage) {
    session.receive(CONTROL_IDENTIFIER, &control(message), Instant::now());
}

/// The one control message that is to be sent now.
fn sent(session: &mut Session) -> ControlMessage {
    let chunk = session.output().unwrap();
    assert_eq!(chunk.identifier, CONTROL_IDENTIFIER);
    ControlMessage::decode(&chunk.bytes).unwrap()
}

fn events(session: &mut Session) -> Vec<SessionEvent> {
    std::iter::from_fn(|| session.event()).collect()
}

/// An active session whose Initiate is out.
fn active(config: InitiatorConfig) -> Session {
    let mut session = Session::initiate(config, Instant::now()).unwrap();
    let initiate = session.output().unwrap();
    assert_eq!(initiate.identifier, CONTROL_IDENTIFIER);
    session
}

/// A passive session that was asked with this connection data.
fn asked(config: &ResponderConfig, data: ConnectionData) -> Session {
    let mut session = Session::listen(config.clone(), Instant::now()).unwrap();
    give(
        &mut session,
        &message(0, Function::EnhancedInitiate, Some(data)),
    );
    session
}

fn request_of(session: &mut Session) -> SessionRequest {
    match session.event() {
        Some(SessionEvent::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

/// Accepts with the own limits: the terms, and the connection data of the Accept.
fn accepted(config: &ResponderConfig, data: ConnectionData) -> (SessionTerms, ConnectionData) {
    let mut session = asked(config, data);
    request_of(&mut session);
    let terms = session.accept(&accepting(config)).unwrap();
    let reply = sent(&mut session);
    assert_eq!(reply.function, Function::EnhancedAccept);
    (terms, reply.connection_data.unwrap())
}

/// What an active session makes of an Enhanced Accept.
fn answered(config: InitiatorConfig, data: ConnectionData) -> (Session, Vec<SessionEvent>) {
    let mut session = active(config);
    give(
        &mut session,
        &message(0, Function::EnhancedAccept, Some(data)),
    );
    let events = events(&mut session);
    (session, events)
}

fn established(events: &[SessionEvent]) -> SessionTerms {
    match events {
        [SessionEvent::Established(terms)] => terms.clone(),
        other => panic!("{other:?}"),
    }
}

fn send_only() -> RtrKinds {
    RtrKinds::only(RtrKind::Send)
}
