// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// `follow`, at an application's cgroup, reports when its TCP connections open and close, counts their bytes, and sets their pacing rate.
// `release` looks at all sockets once, and ends the rates of idle connections; `resume` restores events that another program has
// replaced. README.md lists the maps.
//
// Each cgroup has its own program, which differs in APPLICATION; they share the maps. All port rules share one `follow`, at the root
// cgroup: the kernel allows 64 programs of a kind there.

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

// Of the two licences, the kernel accepts only this one.
char LICENSE[] SEC("license") = "GPL";

// Constants that the kernel's headers define for user space only.
#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SO_MAX_PACING_RATE 47
#define SOL_TCP 6
#define UNPACED 0xffffffff

// An option of TCP sockets, since Linux 6.12: the events of a connection that programs receive.
#define TCP_BPF_SOCK_OPS_CB_FLAGS 1008
// The events that `follow` needs.
#define FOLLOWED_EVENTS (BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG)

// Set before loading: the cgroup's id, and the minimum pacing rate in bytes per second.
volatile const __u64 APPLICATION = 0;
volatile const __u32 MIN_PACE = 1;
// Whether the programs are those of port rules, and their network namespace.
volatile const __u32 PORTS = 0;
volatile const __u64 NAMESPACE = 0;
// Whether the kernel has its types (BTF), which give the offsets below at load time (CO-RE).
volatile const __u32 HAS_TYPES = 0;

// Fields of kernel types that are read.
struct in6_addr {
	union {
		__u32 u6_addr32[4];
	} in6_u;
} __attribute__((preserve_access_index));

struct sock_common {
	__u16 skc_family;
	__u16 skc_num;
	__be16 skc_dport;
	__be32 skc_rcv_saddr;
	__be32 skc_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	struct in6_addr skc_v6_daddr;
} __attribute__((preserve_access_index));

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

struct tcp_sock {
	__u32 write_seq;
	__u32 snd_nxt;
	__u8 chrono_type : 2;
} __attribute__((preserve_access_index));

// What held the connection back when it last tried to send, as the kernel counts for `ss` (rwnd_limited).
#define TCP_CHRONO_RWND_LIMITED 2

// The application of a port rule. No cgroup except the root has an id with these low bits.
#define PORT_APPLICATION(port) ((__u64)(port) << 48 | 1)
#define IS_PORT(application) ((__u32)(application) == 1 && (application) != 1)

// The two ends of a connection. IPv4 addresses are ::ffff:a.b.c.d; ports are in host byte order.
struct ends {
	__u8 local[16];
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;
};

struct connection {
	__u64 application;
	__u64 cookie;
	__u64 opened_at;   // ns of the monotonic clock
	__u64 sent;        // acknowledged bytes
	__u64 received;
	__u64 backlogged_since; // ns of the monotonic clock; 0: no backlog at the last sample
	__u32 pacing_rate; // bytes per second that Weir set; UNPACED: none
	__u32 own_rate;    // bytes per second that the program had set; UNPACED: none
	__u32 syn;         // 1 at the connecting end, where the SYN counts as an acknowledged byte
	__u32 sacked;      // bytes that arrived after lost ones, about: full segments count
};

struct pacing_entry {
	__u64 rate;      // bytes per second
	__u64 lease_end; // ns of the monotonic clock
};

// An application and the address of the other host.
struct start_key {
	__u64 application;
	__u8 remote[16];
};

enum { OPENED = 1, CLOSED = 2 };

struct event {
	__u64 time; // ns of the monotonic clock
	struct connection connection;
	struct ends ends;
	__u32 kind;
};

enum { LOST_EVENTS = 0, TRACKING_FAILURES = 1, COUNTS = 2 };

// The applications whose new connections are followed, with the depth of their cgroups. A cgroup has a greater depth than those that
// contain it; ports have 0.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u8);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} applications SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct ends);
	__type(value, struct connection);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct ends);
	__type(value, struct pacing_entry);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} paces SEC(".maps");

// The rate of each connection without an entry in `paces`: the agent has not measured it yet. Entries whose lease has ended stay until the
// map needs their place.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct start_key);
	__type(value, struct pacing_entry);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} starts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} counts SEC(".maps");

static void count(__u32 kind)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &kind);

	if (value)
		__sync_fetch_and_add(value, 1);
}

static int read_ends(struct bpf_sock_ops *ops, struct ends *ends)
{
	__u32 *local = (__u32 *)ends->local, *remote = (__u32 *)ends->remote;

	if (ops->family == AF_INET) {
		local[2] = remote[2] = bpf_htonl(0xffff);
		local[3] = ops->local_ip4;
		remote[3] = ops->remote_ip4;
		// Otherwise the compiler merges this load and the last one below, through a pointer that the verifier refuses.
		barrier();
	} else if (ops->family == AF_INET6) {
		local[0] = ops->local_ip6[0];
		local[1] = ops->local_ip6[1];
		local[2] = ops->local_ip6[2];
		local[3] = ops->local_ip6[3];
		remote[0] = ops->remote_ip6[0];
		remote[1] = ops->remote_ip6[1];
		remote[2] = ops->remote_ip6[2];
		remote[3] = ops->remote_ip6[3];
	} else {
		return 0;
	}
	ends->local_port = ops->local_port;
	ends->remote_port = bpf_ntohl(ops->remote_port);
	return 1;
}

static void send_event(__u32 kind, const struct ends *ends, const struct connection *connection)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		count(LOST_EVENTS);
		return;
	}
	event->time = bpf_ktime_get_ns();
	event->connection = *connection;
	event->ends = *ends;
	event->kind = kind;
	bpf_ringbuf_submit(event, 0);
}

// Updates the byte counts. Acknowledged bytes exclude SYN and FIN, which the kernel counts as a byte each.
static void update(struct bpf_sock_ops *ops, __u32 state, struct connection *connection)
{
	__u64 control_bytes = connection->syn, acked = ops->bytes_acked;

	if (state == BPF_TCP_FIN_WAIT2 || state == BPF_TCP_CLOSING || state == BPF_TCP_LAST_ACK ||
	    state == BPF_TCP_TIME_WAIT)
		control_bytes++;
	connection->sent = acked > control_bytes ? acked - control_bytes : 0;
	connection->received = ops->bytes_received;
	connection->sacked = ops->sacked_out * ops->mss_cache;
}

// Whether data waits to be sent that the receiver's window does not hold back. At a sample of the round-trip time, the peer has just
// acknowledged data, and the connection has not used the room for more.
static bool is_backlogged(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sock = ops->sk;
	struct tcp_sock *tcp;

	if (!HAS_TYPES || !sock)
		return false;
	tcp = bpf_skc_to_tcp_sock(sock);
	if (!tcp)
		return false;
	return tcp->write_seq != tcp->snd_nxt && BPF_CORE_READ_BITFIELD(tcp, chrono_type) != TCP_CHRONO_RWND_LIMITED;
}

static void update_backlog(struct bpf_sock_ops *ops, struct connection *connection)
{
	if (!is_backlogged(ops))
		connection->backlogged_since = 0;
	else if (!connection->backlogged_since)
		connection->backlogged_since = bpf_ktime_get_ns();
}

// Whether the agent still follows the application. The kernel detaches a program some time after the agent removed it.
static bool is_followed(__u64 application)
{
	return bpf_map_lookup_elem(&applications, &application);
}

// Whether a connection of `other` belongs to `application`: its cgroup is inside that of `other`, or `other` is followed no longer.
static bool has_precedence(__u64 application, __u64 other)
{
	__u8 *depth = bpf_map_lookup_elem(&applications, &application);
	__u8 *other_depth = bpf_map_lookup_elem(&applications, &other);

	return depth && (!other_depth || *depth > *other_depth);
}

// The application of the local port, or else of the remote port; 0 without a rule.
static __u64 application_of_ports(const struct ends *ends)
{
	if (is_followed(PORT_APPLICATION(ends->local_port)))
		return PORT_APPLICATION(ends->local_port);
	if (is_followed(PORT_APPLICATION(ends->remote_port)))
		return PORT_APPLICATION(ends->remote_port);
	return 0;
}

static struct connection *open(struct bpf_sock_ops *ops, const struct ends *ends, __u64 application)
{
	struct connection new = {
		.application = application,
		.cookie = bpf_get_socket_cookie(ops),
		.opened_at = bpf_ktime_get_ns(),
		.pacing_rate = UNPACED,
		.own_rate = UNPACED,
		.syn = ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB,
	};

	update(ops, ops->state, &new);
	// While new programs replace old ones, both run. The first one that adds the connection sends the event.
	if (bpf_map_update_elem(&connections, ends, &new, BPF_NOEXIST) == 0)
		send_event(OPENED, ends, &new);
	return bpf_map_lookup_elem(&connections, ends);
}

static void close(const struct ends *ends, const struct connection *connection)
{
	struct connection last = *connection;

	if (bpf_map_delete_elem(&connections, ends) == 0)
		send_event(CLOSED, ends, &last);
	bpf_map_delete_elem(&paces, ends);
}

// Gives a connection to the application of its innermost cgroup, whose program was attached later than that of its port or outer cgroup.
static struct connection *move_to_cgroup(struct bpf_sock_ops *ops, const struct ends *ends,
					 struct connection *connection, __u64 application)
{
	__u32 pacing_rate = connection->pacing_rate, own_rate = connection->own_rate;

	close(ends, connection);
	connection = open(ops, ends, application);
	// The socket keeps its rate until another one is set.
	if (connection) {
		connection->pacing_rate = pacing_rate;
		connection->own_rate = own_rate;
	}
	return connection;
}

// The ordered rate of a connection in bytes per second; UNPACED: none. A rate holds for its lease, even if the agent has exited.
static __u32 find_ordered_rate(const struct ends *ends, __u64 application)
{
	struct pacing_entry *entry = bpf_map_lookup_elem(&paces, ends);
	struct start_key key = { .application = application };
	__u64 now = bpf_ktime_get_ns();

	if (!entry || now >= entry->lease_end) {
		__builtin_memcpy(key.remote, ends->remote, sizeof(key.remote));
		entry = bpf_map_lookup_elem(&starts, &key);
		if (!entry || now >= entry->lease_end)
			return UNPACED;
	}
	if (entry->rate < MIN_PACE)
		return MIN_PACE;
	return entry->rate < UNPACED ? entry->rate : UNPACED;
}

// Updates the rate that the program has set. The program may change it while the connection has an ordered rate. `socket` is a socket, or
// the context of a program that the kernel calls for one.
static __always_inline void update_own_rate(void *socket, struct connection *connection)
{
	__u32 applied_rate = connection->pacing_rate, current_rate = UNPACED;
	bool is_paced = applied_rate != UNPACED;

	if (connection->own_rate < applied_rate)
		applied_rate = connection->own_rate;
	if (bpf_getsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &current_rate, sizeof(current_rate))) {
		if (!is_paced)
			connection->own_rate = UNPACED;
	} else if (!is_paced || current_rate != applied_rate) {
		connection->own_rate = current_rate;
	}
}

static void set_pacing_rate(struct bpf_sock_ops *ops, const struct ends *ends, struct connection *connection)
{
	__u32 rate = find_ordered_rate(ends, connection->application), new_rate;

	if (rate == connection->pacing_rate)
		return;
	update_own_rate(ops, connection);
	// A lower pacing rate that the program has set stays.
	new_rate = rate < connection->own_rate ? rate : connection->own_rate;
	if (bpf_setsockopt(ops, SOL_SOCKET, SO_MAX_PACING_RATE, &new_rate, sizeof(new_rate)) == 0)
		connection->pacing_rate = rate;
}

SEC("sockops")
int follow(struct bpf_sock_ops *ops)
{
	__u32 op = ops->op;
	bool is_new = op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB;
	bool is_closed = op == BPF_SOCK_OPS_STATE_CB && ops->args[1] == BPF_TCP_CLOSE;
	struct connection *connection;
	__u64 application = APPLICATION;
	struct ends ends = {};
	bool is_known;

	if (!is_new && !is_closed && op != BPF_SOCK_OPS_RTT_CB)
		return 1;
	if (!read_ends(ops, &ends))
		return 1;
	connection = bpf_map_lookup_elem(&connections, &ends);
	is_known = connection && connection->cookie == bpf_get_socket_cookie(ops);
	if (PORTS) {
		// A connection stays with its rule until the agent has removed both: until then, its pacing rate can end here.
		if (is_known && IS_PORT(connection->application))
			application = connection->application;
		else
			application = application_of_ports(&ends);
		if (!application || bpf_get_netns_cookie(ops) != NAMESPACE)
			return 1;
	}
	if (is_new)
		bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | FOLLOWED_EVENTS);
	if (is_known && connection->application != application) {
		// Of several cgroups that contain each other, the innermost counts; its program runs first. A cgroup has precedence over a port.
		if (PORTS || !has_precedence(application, connection->application))
			return 1;
		// The connection opened before a program followed this cgroup.
		if (!is_closed)
			connection = move_to_cgroup(ops, &ends, connection, application);
	}
	if (connection && connection->cookie != bpf_get_socket_cookie(ops)) {
		// Another network namespace has a connection between the same ends.
		if (!is_new)
			return 1;
		// A new connection with the same ends: the program missed the end of the earlier one.
		close(&ends, connection);
		connection = 0;
	}
	if (is_closed) {
		if (connection) {
			update(ops, ops->args[0], connection);
			close(&ends, connection);
		}
		return 1;
	}
	if (!connection && !is_followed(application))
		return 1;
	if (!connection) {
		connection = open(ops, &ends, application);
		if (!connection) {
			count(TRACKING_FAILURES);
			return 1;
		}
	}
	// A new connection may stay idle, and would keep a rate of this time until its first acknowledgement. The kernel does not pace the first
	// packets, so the rate that counts is that of the first sample.
	if (is_new)
		return 1;
	update(ops, ops->state, connection);
	update_backlog(ops, connection);
	set_pacing_rate(ops, &ends, connection);
	return 1;
}

static void read_socket_ends(struct sock_common *socket, struct ends *ends)
{
	__u32 *local = (__u32 *)ends->local, *remote = (__u32 *)ends->remote;

	if (socket->skc_family == AF_INET) {
		local[2] = remote[2] = bpf_htonl(0xffff);
		local[3] = socket->skc_rcv_saddr;
		remote[3] = socket->skc_daddr;
	} else {
		for (int at = 0; at < 4; at++) {
			local[at] = socket->skc_v6_rcv_saddr.in6_u.u6_addr32[at];
			remote[at] = socket->skc_v6_daddr.in6_u.u6_addr32[at];
		}
	}
	ends->local_port = socket->skc_num;
	ends->remote_port = bpf_ntohs(socket->skc_dport);
}

// The connection of a socket that an iterator has reached; 0 if it is not followed.
static __always_inline struct connection *find_connection(struct tcp_sock *tcp, struct sock_common *socket,
							  struct ends *ends)
{
	struct connection *connection;

	read_socket_ends(socket, ends);
	connection = bpf_map_lookup_elem(&connections, ends);
	return connection && connection->cookie == bpf_get_socket_cookie(tcp) ? connection : 0;
}

SEC("iter/tcp")
int release(struct bpf_iter__tcp *context)
{
	struct sock_common *socket = context->sk_common;
	struct connection *connection;
	struct tcp_sock *tcp;
	struct ends ends = {};
	__u32 own_rate;

	if (!socket)
		return 0;
	tcp = bpf_skc_to_tcp_sock(socket);
	if (!tcp)
		return 0;
	connection = find_connection(tcp, socket, &ends);
	if (!connection || connection->pacing_rate == UNPACED)
		return 0;
	if (find_ordered_rate(&ends, connection->application) != UNPACED)
		return 0;
	update_own_rate(tcp, connection);
	own_rate = connection->own_rate;
	if (bpf_setsockopt(tcp, SOL_SOCKET, SO_MAX_PACING_RATE, &own_rate, sizeof(own_rate)) == 0)
		connection->pacing_rate = UNPACED;
	return 0;
}

// Asks again for the events of connections whose flags another program has replaced, and prints a byte for each.
SEC("iter/tcp")
int resume(struct bpf_iter__tcp *context)
{
	struct sock_common *socket = context->sk_common;
	struct tcp_sock *tcp;
	struct ends ends = {};
	__u32 flags = 0;
	char mark = '.';

	if (!socket)
		return 0;
	tcp = bpf_skc_to_tcp_sock(socket);
	if (!tcp || !find_connection(tcp, socket, &ends))
		return 0;
	if (bpf_getsockopt(tcp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags)) ||
	    (flags & FOLLOWED_EVENTS) == FOLLOWED_EVENTS)
		return 0;
	flags |= FOLLOWED_EVENTS;
	if (bpf_setsockopt(tcp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags)) == 0)
		bpf_seq_write(context->meta->seq, &mark, sizeof(mark));
	return 0;
}
