//! Sessions and their connections, as the state of clients sees them.

use millrace_wire::nfs4::{
    ConnectionBinding, CreateSessionOperation, CreateSessionReply, OperationOutcome,
    OperationStatus, channel_direction, session_flags,
};

use super::callback;
use super::client_state::ClientState;
use super::client_translation::{attributes, caller, limits, status};
use super::seam::CallOrigin;
use crate::state::{
    BindingRequest, BoundChannels, ClientId, GuardedOperation, SessionId, SessionOrigin,
    SessionRequest, StateError,
};

/// CREATE_SESSION.
pub(super) async fn create(
    state: &ClientState,
    origin: &CallOrigin<'_>,
    arguments: &CreateSessionOperation<'_>,
) -> OperationOutcome<CreateSessionReply> {
    const KNOWN: u32 = session_flags::PERSIST | session_flags::BACKCHANNEL | session_flags::RDMA;
    let (client, sequence) = (ClientId(arguments.client), arguments.sequence);
    let (fore, back) = (limits(&arguments.fore), limits(&arguments.back));
    let program = arguments.callback_program;
    let offered = callback::parameters(state, origin, program, &arguments.security);
    let (callbacks, refused) = match offered {
        Ok(offered) => ((!offered.credentials.is_empty()).then_some(offered), None),
        Err(refused) => (None, Some(refused)),
    };
    let fault = match arguments.flags & !KNOWN {
        0 => refused,
        _ => Some(StateError::Inval),
    };
    let is_asked = arguments.flags & session_flags::BACKCHANNEL != 0 && callbacks.is_some();
    let connection = origin.connection;
    let path = state.callbacks().map(|sender| {
        sender.watch(connection);
        sender.path(connection)
    });
    let sender = state.callbacks_by(connection).filter(|_| is_asked);
    let backchannel = sender.is_some();
    if let Some(sender) = sender {
        // The first callback may be due before the answer of the home is here.
        sender.allow(connection);
    }
    let caller = caller(&origin.identity);
    let from = SessionOrigin {
        address: origin.address(),
        minor_version: origin.minor_version,
    };
    let grant = state
        .ask(move |home, now| {
            home.check_caller(client, GuardedOperation::CreateSession, &caller)?;
            let request = SessionRequest {
                client,
                sequence,
                principal: &caller.principal,
                fore,
                back,
                backchannel,
                origin: Some(from),
                connection: path,
                callbacks: callbacks.as_ref(),
                fault: fault.as_ref(),
            };
            home.create_session(&request, now)
        })
        .await
        .map_err(|error| status(&error))?;
    connection.associate(&grant.session.0);
    Ok(CreateSessionReply {
        session: grant.session.0,
        sequence: grant.sequence,
        flags: match grant.backchannel {
            true => session_flags::BACKCHANNEL,
            false => 0,
        },
        fore: attributes(&grant.fore),
        back: attributes(&grant.back),
    })
}

/// BIND_CONN_TO_SESSION.
pub(super) async fn bind(
    state: &ClientState,
    origin: &CallOrigin<'_>,
    arguments: &ConnectionBinding,
) -> OperationOutcome<ConnectionBinding> {
    let session = SessionId(arguments.session);
    let check = || {
        let found = state.sessions().find(session)?;
        found.check_caller(GuardedOperation::BindConnection, &caller(&origin.identity))
    };
    let (fore, or_both) = match arguments.direction {
        channel_direction::FORE => (true, false),
        channel_direction::FORE_OR_BOTH => (true, true),
        channel_direction::BACK => (false, false),
        channel_direction::BACK_OR_BOTH => (false, true),
        _ => return Err(OperationStatus::Invalid),
    };
    let connection = origin.connection;
    let request = BindingRequest {
        channels: BoundChannels { fore, back: !fore },
        or_both,
        can_call: state.callbacks_by(connection).is_some(),
    };
    let direction = match state.callbacks() {
        Some(sender) => {
            check().map_err(|error| status(&error))?;
            match request.can_call && (or_both || !fore) {
                true => sender.allow(connection),
                false => sender.watch(connection),
            }
            let path = sender.path(connection);
            let bound = state.ask(move |home, _| home.bind_connection(session, path, request));
            match bound.await.map_err(|error| status(&error))? {
                BoundChannels { back: false, .. } => channel_direction::FORE,
                BoundChannels { fore: false, .. } => channel_direction::BACK,
                BoundChannels { .. } => channel_direction::BOTH,
            }
        }
        // Any connection carries requests.
        None => {
            check().map_err(|error| status(&error))?;
            match fore {
                true => channel_direction::FORE,
                false => return Err(OperationStatus::Invalid),
            }
        }
    };
    connection.associate(&arguments.session);
    Ok(ConnectionBinding {
        session: arguments.session,
        direction,
        rdma_mode: false,
    })
}
