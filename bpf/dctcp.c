// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// A reduced DCTCP for the testbed on kernels without `dctcp`: the congestion control `weir_dctcp` (struct_ops), which load_dctcp.c
// registers. Written from RFC 8257 and "Data Center TCP (DCTCP)", SIGCOMM '10:
//
// - The receiver echoes each mark: acknowledgements carry ECE exactly while the acknowledged segments are marked (RFC 8257, 3.2).
// - The sender estimates alpha, the share of marked data, with g = 1/16 and once for each window of data (3.3).
// - The first mark of a window reduces the congestion window by alpha / 2. A loss halves it (3.4, 3.5).
// - Otherwise the window grows as that of Reno.
//
// Reduced: alpha counts packets, not bytes; `ss` does not show alpha; nothing is configurable. If the peer's congestion control does not
// need ECN, the peer echoes as in RFC 3168: all acknowledgements carry ECE from the first mark until the sender answers it, which takes a
// round trip. Alpha counts these acknowledgements as marked data, and is too high. The testbed therefore sets both ends.

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

// Of the two licences, the kernel accepts only this one.
char LICENSE[] SEC("license") = "GPL";

// 1.0 of alpha and of shares of marked packets.
#define ONE (1 << 20)

// g = 1 / (1 << GAIN_SHIFT).
#define GAIN_SHIFT 4

// The minimum congestion window, and one that no connection reaches, in packets.
#define MIN_WINDOW 2
#define IMPLAUSIBLE_WINDOW (1 << 20)

// Macros of the kernel, which its BTF lacks.
#define TCP_INFINITE_SSTHRESH 0x7fffffff
#define TCP_CONG_NEEDS_ECN 0x2
#define TCP_ECN_DEMAND_CWR 0x4

// Fields of kernel types that are used. Each kernel's BTF gives their offsets at load time (CO-RE).
struct sock {
};

struct inet_connection_sock {
	struct {
		__u8 pending;
	} icsk_ack;
	__u64 icsk_ca_priv[13];
} __attribute__((preserve_access_index));

struct tcp_sock {
	__u32 rcv_nxt;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 delivered;
	__u32 delivered_ce;
	__u8 ecn_flags;
} __attribute__((preserve_access_index));

enum inet_csk_ack_state_t {
	ICSK_ACK_TIMER = 2,
	ICSK_ACK_NOW = 16,
};

enum tcp_ca_state {
	TCP_CA_Recovery = 3,
};

enum tcp_ca_event {
	CA_EVENT_LOSS = 3,
	CA_EVENT_ECN_NO_CE = 4,
	CA_EVENT_ECN_IS_CE = 5,
};

struct tcp_congestion_ops {
	char name[16];
	__u32 flags;
	void (*init)(struct sock *sk);
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*in_ack_event)(struct sock *sk, __u32 flags);
	__u32 (*undo_cwnd)(struct sock *sk);
};

extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

// The state of a connection, in the space that the kernel keeps for congestion controls.
struct dctcp {
	// The estimated share of marked packets; ONE if all are marked.
	__u32 alpha;
	// The current observation ends when this sequence number is acknowledged.
	__u32 observation_end;
	// Packets delivered, and those of them that were marked, up to the start of the observation.
	__u32 delivered;
	__u32 delivered_ce;
	// The congestion window before its last reduction, in packets.
	__u32 window_before;
	// As receiver: the next expected byte before the last segment arrived, and whether that segment was marked.
	__u32 received;
	__u32 is_marked;
};

static struct dctcp *state_of(struct sock *sk)
{
	return (struct dctcp *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static void start_observation(struct dctcp *dctcp, struct tcp_sock *tp)
{
	dctcp->observation_end = tp->snd_nxt;
	dctcp->delivered = tp->delivered;
	dctcp->delivered_ce = tp->delivered_ce;
}

SEC("struct_ops/init")
void BPF_PROG(dctcp_init, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct dctcp *dctcp = state_of(sk);

	// Cautious, as long as nothing is known: the first mark halves the window.
	dctcp->alpha = ONE;
	dctcp->window_before = 0;
	dctcp->received = tp->rcv_nxt;
	dctcp->is_marked = 0;
	start_observation(dctcp, tp);
}

static __u32 at_least_min(__u32 window)
{
	return window < MIN_WINDOW ? MIN_WINDOW : window;
}

// On a busy machine, Linux 6.18 was seen to call none of these programs for some milliseconds. A reduction then has an arbitrary result.
// This replaces the result by half of the last known window.
static void repair(struct dctcp *dctcp, struct tcp_sock *tp)
{
	__u32 ssthresh = tp->snd_ssthresh;

	if (tp->snd_cwnd < IMPLAUSIBLE_WINDOW && (ssthresh < IMPLAUSIBLE_WINDOW || ssthresh == TCP_INFINITE_SSTHRESH))
		return;
	tp->snd_ssthresh = at_least_min(dctcp->window_before / 2);
	if (tp->snd_cwnd > at_least_min(dctcp->window_before))
		tp->snd_cwnd = at_least_min(dctcp->window_before);
}

// At each acknowledgement.
SEC("struct_ops/in_ack_event")
void BPF_PROG(dctcp_acknowledged, struct sock *sk, __u32 flags)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct dctcp *dctcp = state_of(sk);
	__u32 delivered = tp->delivered - dctcp->delivered;
	__u64 marked = tp->delivered_ce - dctcp->delivered_ce;

	repair(dctcp, tp);
	if ((__s32)(tp->snd_una - dctcp->observation_end) < 0 || delivered == 0)
		return;
	if (marked > delivered)
		marked = delivered;
	dctcp->alpha += (__u32)(marked * ONE / delivered >> GAIN_SHIFT) - (dctcp->alpha >> GAIN_SHIFT);
	start_observation(dctcp, tp);
}

// The window after a mark. The kernel calls this once for each window of data, for a mark or for a loss.
SEC("struct_ops/ssthresh")
__u32 BPF_PROG(dctcp_reduce, struct sock *sk)
{
	struct dctcp *dctcp = state_of(sk);
	__u32 window = ((struct tcp_sock *)sk)->snd_cwnd;

	dctcp->window_before = window;
	return at_least_min(window - (__u32)((__u64)window * dctcp->alpha / (2 * ONE)));
}

// A loss halves the window that preceded the reduction, so that a mark and a loss in one window of data do not add up.
static void halve(struct sock *sk)
{
	((struct tcp_sock *)sk)->snd_ssthresh = at_least_min(state_of(sk)->window_before / 2);
}

SEC("struct_ops/set_state")
void BPF_PROG(dctcp_change_state, struct sock *sk, __u8 new_state)
{
	if (new_state == bpf_core_enum_value(enum tcp_ca_state, TCP_CA_Recovery))
		halve(sk);
}

static void echo(struct tcp_sock *tp, __u32 is_marked)
{
	if (is_marked)
		tp->ecn_flags |= TCP_ECN_DEMAND_CWR;
	else
		tp->ecn_flags &= ~TCP_ECN_DEMAND_CWR;
}

// As receiver, at each segment. At a change, segments that wait for a delayed acknowledgement are acknowledged first, with the former mark.
static void receive(struct sock *sk, __u32 is_marked)
{
	struct inet_connection_sock *connection = (struct inet_connection_sock *)sk;
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct dctcp *dctcp = state_of(sk);

	if (dctcp->is_marked != is_marked) {
		if (connection->icsk_ack.pending & bpf_core_enum_value(enum inet_csk_ack_state_t, ICSK_ACK_TIMER)) {
			echo(tp, dctcp->is_marked);
			bpf_tcp_send_ack(tp, dctcp->received);
		}
		connection->icsk_ack.pending |= bpf_core_enum_value(enum inet_csk_ack_state_t, ICSK_ACK_NOW);
	}
	dctcp->received = tp->rcv_nxt;
	dctcp->is_marked = is_marked;
	echo(tp, is_marked);
}

SEC("struct_ops/cwnd_event")
void BPF_PROG(dctcp_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == bpf_core_enum_value(enum tcp_ca_event, CA_EVENT_ECN_IS_CE))
		receive(sk, 1);
	else if (event == bpf_core_enum_value(enum tcp_ca_event, CA_EVENT_ECN_NO_CE))
		receive(sk, 0);
	else if (event == bpf_core_enum_value(enum tcp_ca_event, CA_EVENT_LOSS))
		halve(sk);
}

SEC("struct_ops/cong_avoid")
void BPF_PROG(dctcp_grow, struct sock *sk, __u32 ack, __u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

// The window if a reduction for a loss was a mistake.
SEC("struct_ops/undo_cwnd")
__u32 BPF_PROG(dctcp_undo, struct sock *sk)
{
	__u32 window = ((struct tcp_sock *)sk)->snd_cwnd, before = state_of(sk)->window_before;

	return window < before ? before : window;
}

SEC(".struct_ops")
struct tcp_congestion_ops weir_dctcp = {
	.name = "weir_dctcp",
	.flags = TCP_CONG_NEEDS_ECN,
	.init = (void *)dctcp_init,
	.ssthresh = (void *)dctcp_reduce,
	.cong_avoid = (void *)dctcp_grow,
	.set_state = (void *)dctcp_change_state,
	.cwnd_event = (void *)dctcp_event,
	.in_ack_event = (void *)dctcp_acknowledged,
	.undo_cwnd = (void *)dctcp_undo,
};
