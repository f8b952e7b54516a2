//! Sizes and offsets from rdma-core 44's headers for 64-bit machines: those of rdma-sys must be the
//! same, or this module is unsound.

use std::mem::{offset_of, size_of};

use rdma_sys::{
    ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_port_attr, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc, rdma_cm_event, rdma_cm_id,
    rdma_conn_param,
};

const _: () = {
    assert!(size_of::<usize>() == 8);
    assert!(size_of::<ibv_wc>() == 48);
    assert!(offset_of!(ibv_wc, qp_num) == 28);
    assert!(offset_of!(ibv_wc, wc_flags) == 36);
    assert!(size_of::<ibv_send_wr>() == 128);
    assert!(offset_of!(ibv_send_wr, wr) == 40);
    assert!(offset_of!(ibv_send_wr, bind_mw_tso_union) == 80);
    assert!(size_of::<ibv_recv_wr>() == 32);
    assert!(size_of::<ibv_sge>() == 16);
    assert!(size_of::<ibv_device>() == 664);
    assert!(size_of::<ibv_device_attr>() == 232);
    assert!(size_of::<ibv_port_attr>() == 52);
    assert!(offset_of!(ibv_port_attr, link_layer) == 46);
    assert!(size_of::<ibv_context>() == 328);
    assert!(offset_of!(ibv_context, async_fd) == 268);
    assert!(size_of::<ibv_cq>() == 128);
    assert!(offset_of!(ibv_cq, cqe) == 28);
    assert!(size_of::<ibv_qp>() == 160);
    assert!(offset_of!(ibv_qp, qp_num) == 52);
    assert!(size_of::<ibv_qp_attr>() == 144);
    assert!(size_of::<ibv_qp_init_attr>() == 64);
    assert!(size_of::<rdma_cm_id>() == 416);
    assert!(offset_of!(rdma_cm_id, route) == 32);
    assert!(size_of::<rdma_conn_param>() == 24);
    assert!(offset_of!(rdma_cm_event, param) == 24);
};
