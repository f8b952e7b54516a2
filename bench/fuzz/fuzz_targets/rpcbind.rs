//! Arguments and results of the port mapper and rpcbind, and universal addresses: the first byte
//! chooses.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_fuzz::{check, choice};
use millrace_wire::rpcbind::{
    AddressList, Mapping, PortmapDump, Registration, RpcbindDump, TransportAddress, parse_address,
    universal_address,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((what, bytes)) = choice(bytes, 7) else {
        return;
    };
    match what {
        0 => check::<Mapping>(bytes),
        1 => check::<PortmapDump<'_>>(bytes),
        2 => check::<Registration<'_>>(bytes),
        3 => check::<RpcbindDump<'_>>(bytes),
        4 => check::<AddressList<'_>>(bytes),
        5 => check::<TransportAddress<'_>>(bytes),
        _ => {
            if let Some(address) = parse_address(bytes) {
                assert_eq!(
                    parse_address(universal_address(address).as_bytes()),
                    Some(address)
                );
            }
        }
    }
});
