// Claims of ranks: a process shows that the rank it says is its own. One that says another's, with
// the job's token, is refused by name, and the job goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "shoal/base/sha256.h"
#include "shoal/table/coordinator.h"
#include "shoal/table/link/handshake.h"
#include "support/expect.h"
#include "support/job.h"
#include "support/links.h"

namespace shoal::table::claims_test {
namespace {

using namespace std::chrono_literals;
using shoal::test::expect_all_ok;
using shoal::test::JobOverTcp;
using test::credentials;
using test::Ends;

constexpr const char* kOther = "has signed something else than this connection";

std::shared_ptr<const SigningKey> new_key() { return std::make_shared<const SigningKey>(); }

// ---- signatures ----

// A process with the token says what rank 1 says, and has heard all that rank 1 ever said.
TEST(Claims, ASignatureIsGoodForOneConnectionAndOneKey) {
  const Credentials own = credentials(1);
  Credentials impostor = own;
  impostor.key = new_key();
  Handshake before(credentials(0), std::nullopt, random_nonce()),
      own_one(own, Purpose::kRows, random_nonce(), 0);
  const Message old = *own_one.take(*before.begin()).value().claim;
  Handshake accepts(credentials(0), std::nullopt, random_nonce()),
      connects(impostor, Purpose::kRows, random_nonce(), 0);
  const auto said = connects.take(*accepts.begin()).value();
  ASSERT_OK(accepts.take(*said.answer));
  EXPECT_FAILS_WITH(kOther, accepts.take(old));
  Claim mixed = std::get<Claim>(*said.claim);
  mixed.key = own.key->public_key();
  EXPECT_FAILS_WITH(kOther, accepts.take(mixed));
  const auto admitted = accepts.take(*said.claim);
  ASSERT_OK(admitted);
  EXPECT_EQ(admitted.value().peer->key, impostor.key->public_key()) << "not that of rank 1";
}

// Rank 1 has dialled rank 2, which hands on what it hears to rank 0, and back.
TEST(Claims, OneThatIsHandedOnToAnotherProcessIsRefused) {
  Handshake accepts(credentials(0), std::nullopt, random_nonce()),
      connects(credentials(1), Purpose::kRows, random_nonce(), 2);
  const auto said = connects.take(*accepts.begin()).value();
  ASSERT_OK(accepts.take(*said.answer));
  EXPECT_FAILS_WITH("Here is rank 0 of the job, not rank 2", accepts.take(*said.claim));
  for (const Rank whom : {Rank{0}, kNoRank}) {
    Claim changed = std::get<Claim>(*said.claim);
    changed.whom = whom;
    EXPECT_FALSE(accepts.take(changed).ok()) << whom;
  }
}

// It pretends to be rank 0, and has an encrypted connection with each of the two.
TEST(Claims, OneThatIsHandedOnToAnotherEncryptedConnectionIsRefused) {
  Handshake accepts(credentials(0), std::nullopt, random_nonce()),
      connects(credentials(1), Purpose::kRows, random_nonce(), 0);
  accepts.bind("", "keying material of one connection");
  connects.bind("", "keying material of the other");
  const auto said = connects.take(*accepts.begin()).value();
  ASSERT_OK(accepts.take(*said.answer));
  EXPECT_FAILS_WITH(kOther, accepts.take(*said.claim));
}

// ---- ranks that are not known yet ----

TEST(Claims, AnEndThatIsNotKnownYetIsAdmittedWhenItIs) {
  Ends ends;
  std::atomic<bool> known = false;
  std::atomic<int> asked = 0;
  const auto listener = Listener::create(ends.far_threads, "127.0.0.1", 0, ends.far_self,
                                         ends.options, [&](const PeerName&) -> Result<LinkOwner*> {
                                           ++asked;
                                           asked.notify_all();
                                           return known ? &ends.far : nullptr;
                                         });
  ASSERT_OK(listener);
  std::jthread learns([&] {
    asked.wait(0);
    known = true;
    listener.value().ask_again();
  });
  EXPECT_TRUE(ends.try_connect(str("127.0.0.1:", listener.value().port), credentials(1)).ok());
  EXPECT_EQ(asked, 2);
}

// Returns the credentials of a process with the job's token that says it has this rank.
Credentials claiming(const ServiceOptions& job, Rank rank) {
  Sha256 configuration;
  configuration.update(job.configuration);
  return {.rank = rank,
          .incarnation = 1,
          .token = job.token,
          .configuration = configuration.digest(),
          .key = new_key()};
}

// Returns why there is no connection with process `whom`, once it listens; "" if there is one.
std::string refused(Ends& ends, Rank whom, std::uint16_t port, const Credentials& self,
                    Purpose purpose) {
  ends.far_self.rank = whom;
  for (;;) {
    const auto link = ends.try_connect(str("127.0.0.1:", port), self, purpose);
    if (link.ok()) return "";
    if (!nobody_listens(link.error())) return link.error().message;
  }
}

bool may_try_again(const std::string& message) { return worth_another_try({Code::kPeer, message}); }

// A roster tells a process where a server is. The same roster may be on its way to that server.
TEST(Claims, AServerRefusesNobodyOfWhomARosterMayCome) {
  JobOverTcp job("bbw", true);
  const auto create = [&](std::size_t rank) {
    return std::async(std::launch::async, [&, rank] { return Service::create(job.options[rank]); });
  };
  auto server = create(1);
  Ends ends({.connect = 300ms});
  const Credentials other = claiming(job.options[0], 2);
  const std::uint16_t port = job.options[1].port;
  const std::string why = refused(ends, 1, port, other, Purpose::kRows);
  EXPECT_TRUE(may_try_again(why)) << why;
  auto first = create(0), worker = create(2);
  const Result<std::unique_ptr<Service>> services[] = {first.get(), server.get(), worker.get()};
  for (const auto& service : services) ASSERT_OK(service);
  EXPECT_HAS(refused(ends, 1, port, other, Purpose::kRows),
             "rank 2 (host host-c) is another process's");
}

// ---- another's rank ----

TEST(Claims, AnothersRankIsRefusedByNameAndTheJobGoesOn) {
  JobOverTcp job("bbb");
  shoal::test::Training training;
  training.at = [&](Table& table, Clock clock, Want) {
    if (table.worker() != 0 || clock != 5) return;
    Ends ends;
    for (const Purpose purpose :
         {Purpose::kRows, Purpose::kCoordination, Purpose::kCopies, Purpose::kStandby})
      for (Rank whom = 0; whom < job.size(); ++whom) {
        const Rank rank = (whom + 1) % 3;
        const std::string why = refused(ends, whom, job.services[whom]->port(),
                                        claiming(job.options[0], rank), purpose);
        EXPECT_HAS(why, str("rank ", rank, " (host host-", "abc"[rank]));
        EXPECT_HAS(why, "is another process's");
      }
  };
  expect_all_ok(job.train_all(training));
}

TEST(Claims, ARankThatWasGivenBelongsToTheKeyThatAskedForIt) {
  JobOverTcp job("b");
  expect_all_ok(job.start());
  ServiceOptions joins = job.options[0];
  joins.key = new_key();
  const auto place = enroll(joins);
  ASSERT_OK(place);
  ASSERT_EQ(place.value().rank, 1u);
  Ends ends;
  Credentials process = claiming(joins, 1);
  const auto why = [&] {
    return refused(ends, 0, job.options[0].port, process, Purpose::kCoordination);
  };
  EXPECT_HAS(why(), "rank 1 is another process's");
  process.key = joins.key;
  EXPECT_EQ(why(), "");
  process.rank = 2;
  EXPECT_HAS(why(), "rank 2 cannot be in this job");
}

// The launcher gives no ranks: none belongs to a process that has not asked for it.
TEST(Claims, ARankThatIsYetToBeGivenCannotBeTaken) {
  JobOverTcp job("bb");
  for (ServiceOptions& options : job.options) options.ranks_by_order = true;
  auto first = std::async(std::launch::async, [&] { return Service::create(job.options[0]); });
  Ends ends({.connect = 300ms});
  const std::string why =
      refused(ends, 0, job.options[0].port, claiming(job.options[0], 1), Purpose::kCoordination);
  EXPECT_TRUE(may_try_again(why)) << why;
  job.options[1].key = new_key();
  const auto place = enroll(job.options[1]);
  ASSERT_OK(place);
  ASSERT_EQ(place.value().rank, 1u);
  const auto second = Service::create(job.options[1]);
  ASSERT_OK(second);
  ASSERT_OK(first.get());
}

// ---- another coordinator ----

TEST(Claims, TheStateOfACoordinatorHasTheKeys) {
  const PublicKey keys[] = {new_key()->public_key(), new_key()->public_key(),
                            new_key()->public_key()};
  Coordinator before({.processes = 2});
  std::vector<Dispatch> out;
  for (const Rank rank : {0u, 1u}) {
    const JoinBody join{.rank = rank,
                        .host = "h",
                        .address = str("10.0.0.", rank, ":1"),
                        .configuration = "c",
                        .key = keys[rank]};
    ASSERT_OK(before.handle(rank, Ask{Topic::kJoin, rank + 1, encode(join)}, Instant(), out));
  }
  ASSERT_EQ(before.enroll(keys[2]), 2u);
  ASSERT_NE(before.roster(), nullptr);
  EXPECT_EQ(before.roster()->processes.at(1).key, keys[1]) << "as all processes are told";
  Coordinator after({.processes = 2});
  ASSERT_OK(after.load(before.save()));
  for (const Rank rank : {0u, 1u, 2u}) EXPECT_EQ(after.key_of(rank), keys[rank]) << rank;
  EXPECT_EQ(after.key_of(3), PublicKey{});
}

// Process 0 gives a rank and dies. Its successor knows whose that is, and whose all others are.
TEST(Claims, TheSuccessorKnowsTheKeys) {
  JobOverTcp job("bbb");
  for (ServiceOptions& options : job.options) options.losses.goes_on = true;
  ServiceOptions joins = job.options[0];
  joins.key = new_key();
  constexpr Clock kLast = 1500;
  expect_all_ok(job.run([&](std::size_t rank, Service& service) -> Status {
    Table& table = *service.table();
    const auto begun = table.ask(Topic::kBarrier, rows_exist(0), "");
    if (!begun.ok()) return begun.error();
    const double own = 1;
    for (Clock clock = 0; clock <= kLast; ++clock) {
      if (rank == 0 && clock == kLast) {
        const auto place = enroll(joins);
        EXPECT_TRUE(place.ok() && place.value().rank == 3);
        return {};
      }
      const auto sum = table.ask(Topic::kSum, clock, numbers_to_bytes({&own, 1}));
      if (!sum.ok()) return sum.error();
    }
    if (rank == 1) {
      Ends ends;
      Credentials process = claiming(joins, 2);
      const auto why = [&] {
        return refused(ends, 1, service.port(), process, Purpose::kCoordination);
      };
      EXPECT_HAS(why(), "rank 2 (host host-c) is another process's");
      process.rank = 3;
      EXPECT_HAS(why(), "rank 3 is another process's");
      process.key = joins.key;
      EXPECT_EQ(why(), "");
    }
    return table.finish(kLast);
  }));
}

}  // namespace
}  // namespace shoal::table::claims_test
