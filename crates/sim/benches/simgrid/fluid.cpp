// Replays coflows with SimGrid's fluid model: every flow has its max-min rate. Reads a network and coflows from standard input, and
// prints the processor seconds of the simulation and the completion time of each coflow.
//
// Input, in numbers: the links, and the capacity of each; the hosts, and the paths between two hosts; the routes, each with its two
// hosts, its path, the number of its links, and its links; the coflows, each with its arrival, the number of its flows, and for each
// flow its two hosts, its path and its bytes.

#include <cstdio>
#include <ctime>
#include <iostream>
#include <simgrid/s4u.hpp>
#include <vector>

namespace sg4 = simgrid::s4u;

struct Flow {
    sg4::Host *from, *to;
    double bytes;
};

template <typename T> static T next() {
    T value;
    if (!(std::cin >> value)) {
        std::fprintf(stderr, "the input ends too early\n");
        std::exit(1);
    }
    return value;
}

int main(int argc, char **argv) {
    sg4::Engine engine(&argc, argv);
    auto *zone = sg4::create_full_zone("fabric");
    std::vector<sg4::LinkInRoute> links;
    for (int link = 0, count = next<int>(); link < count; link++)
        links.emplace_back(zone->create_link(std::to_string(link), next<double>())->set_latency(0)->seal());
    // Each path has its own ends, since a zone has one route between two hosts.
    const int hosts = next<int>(), paths = next<int>();
    std::vector<sg4::Host *> senders, receivers;
    for (int end = 0; end < hosts * paths; end++) {
        senders.push_back(zone->create_host("s" + std::to_string(end), 1e9)->seal());
        receivers.push_back(zone->create_host("r" + std::to_string(end), 1e9)->seal());
    }
    for (int count = next<int>(); count > 0; count--) {
        const int from = next<int>(), to = next<int>(), path = next<int>();
        std::vector<sg4::LinkInRoute> route;
        for (int hops = next<int>(); hops > 0; hops--)
            route.push_back(links.at(next<int>()));
        zone->add_route(senders.at(from * paths + path)->get_netpoint(), receivers.at(to * paths + path)->get_netpoint(), nullptr,
                        nullptr, route, false);
    }
    zone->seal();
    std::vector<double> completion_times(next<int>());
    for (double &completion_time : completion_times) {
        const double arrival = next<double>();
        std::vector<Flow> flows(next<int>());
        for (Flow &flow : flows) {
            const int from = next<int>(), to = next<int>(), path = next<int>();
            flow = {senders.at(from * paths + path), receivers.at(to * paths + path), next<double>()};
        }
        sg4::Actor::create("coflow", senders[0], [arrival, flows, &completion_time] {
            sg4::this_actor::sleep_until(arrival);
            std::vector<sg4::CommPtr> running;
            for (const Flow &flow : flows)
                running.push_back(sg4::Comm::sendto_async(flow.from, flow.to, flow.bytes));
            for (const sg4::CommPtr &comm : running)
                comm->wait();
            completion_time = sg4::Engine::get_clock() - arrival;
        });
    }
    const std::clock_t start = std::clock();
    engine.run();
    std::printf("%.9f\n", double(std::clock() - start) / CLOCKS_PER_SEC);
    for (double completion_time : completion_times)
        std::printf("%.12g\n", completion_time);
}
