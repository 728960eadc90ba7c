#include "support/messages.h"
#include "support/schemes.h"

#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "shoal/table/coordinator/bodies.h"

namespace shoal::table::test {
namespace {

template <class Array>
Array counting(std::uint8_t first) {
  Array bytes{};
  for (std::uint8_t& b : bytes) b = first++;
  return bytes;
}

template <class Array = Digest>
Array digest_of(std::string_view hex) {
  Array digest{};
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] =
        static_cast<std::uint8_t>(std::stoi(std::string(hex.substr(2 * i, 2)), nullptr, 16));
  return digest;
}

Plan golden_plan() {
  Plan plan{.workers = 4,
            .servers = 2,
            .start = 100,
            .rule = {},
            .regularization = optim::Regularization::kL1,
            .weight_decay = 0.0005f,
            .clip = 35,
            .iter_size = 2,
            .scheme = scheme_of("ssp 2"),
            .rows = {}};
  plan.rule = {optim::Rule::kAdam, 0.9f, 0.999f, 0.99f, 1e-8f};
  plan.rows = {
      {65536, 0, 0, true, 1, 1},
      {500, 3, 1, false, 2, 0, 1, 2},
      {.length = 700, .priority = 3, .server = 1, .learns = false, .writer = 3, .reader = 2}};
  plan.codecs = {{.id = CodecId::kTopk,
                  .amount = 0.5f,
                  .bits = 2,
                  .feedback = true,
                  .momentum = 0.75f,
                  .warm_up = 7},
                 {.id = CodecId::kFp16}};
  plan.generation = 3;
  plan.ranks = {0, 2, 3, 5};
  plan.clocks = {100, 107, 100, 130};
  plan.server_ranks = {0, 3};
  return plan;
}

Payload random_payload(Random& random, std::size_t most) {
  std::vector<float> numbers(random.below(most + 1));
  for (float& x : numbers) x = std::bit_cast<float>(random.word());  // NaNs and all
  Payload payload = owned(std::move(numbers));
  payload.codec = static_cast<CodecId>(random.below(256));
  return payload;
}

std::string random_text(Random& random, std::size_t most) {
  std::string text(random.below(most + 1), '\0');
  for (char& c : text) c = static_cast<char>(random.word());
  return text;
}

template <class T>
T one_of(Random& random, std::initializer_list<T> choices) {
  return choices.begin()[random.below(choices.size())];
}

Clock random_clock(Random& random) {
  return std::bit_cast<Clock>(random.word64() >> random.below(64));
}

template <class Bytes>
void fill(Random& random, Bytes& bytes) {
  for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random.word());
}

Part random_part(Random& r) {
  return one_of(r, {Part::kWeights, Part::kHistory, Part::kHistory2, Part::kLeftOut});
}
Code random_code(Random& r) {
  return one_of(r, {Code::kInternal, Code::kPeer, Code::kConfig, Code::kTimeout, Code::kRequeue});
}
Topic random_topic(Random& r) { return static_cast<Topic>(1 + r.below(19)); }

Plan random_plan(Random& r) {
  Plan plan{.workers = static_cast<std::uint16_t>(1 + (r.word() >> r.below(16) & 0xffff) % 65535),
            .servers = static_cast<std::uint16_t>(1 + r.below(9)),
            .start = static_cast<Clock>(r.below(1u << 30)),
            .rule = {},
            .regularization = optim::Regularization::kL2,
            .weight_decay = r.unit(),
            .clip = r.uniform(-1, 40),
            .iter_size = static_cast<std::uint32_t>(1 + r.below(64)),
            .scheme = scheme_of("ssp " + std::to_string(r.below(100))),
            .rows = {}};
  plan.rule.rule = one_of(
      r, {optim::Rule::kSgd, optim::Rule::kNesterov, optim::Rule::kAdam, optim::Rule::kAdaDelta});
  plan.rule.momentum = r.unit();
  for (std::size_t n = r.below(4); n > 0; --n)
    plan.codecs.push_back({static_cast<CodecId>(r.below(256)), r.unit(),
                           static_cast<std::uint8_t>(r.below(256)), r.below(2) == 0,
                           r.below(2) == 0, r.unit(), static_cast<std::int32_t>(r.word())});
  // Makes a few of them longer than 64 KiB.
  for (std::size_t n = 1 + r.below(r.below(8) == 0 ? 5000 : 9); n > 0; --n)
    plan.rows.edit().push_back({static_cast<std::uint32_t>(1 + r.below(kMaxRowFloats)), r.word(),
                                static_cast<std::uint16_t>(r.below(plan.servers)), r.below(2) == 0,
                                r.unit(), r.unit(),
                                static_cast<std::uint8_t>(r.below(plan.codecs.size() + 1)),
                                static_cast<std::uint8_t>(r.below(plan.codecs.size() + 1))});
  for (Row& row : plan.rows.edit())
    if (!row.learns && r.below(2) == 0) {
      row.writer = static_cast<std::int32_t>(r.below(plan.workers));
      row.pull_codec = row.push_codec;
      const auto reader = static_cast<std::int32_t>(r.below(plan.workers));
      if (reader != row.writer && r.below(2) == 0) row.reader = reader;
    }
  plan.generation = r.word();
  if (plan.workers <= kMaxCopiedWorkers) plan.copies = 1 + r.below(2);
  if (plan.workers < 100)
    for (std::uint32_t worker = 0; worker < plan.workers; ++worker)
      plan.ranks.push_back(3 * worker + static_cast<std::uint32_t>(r.below(3)));
  for (std::uint32_t worker = 0; worker < plan.workers % 5; ++worker)
    plan.clocks.push_back(plan.start + static_cast<Clock>(r.below(9)));
  if (plan.clocks.size() != plan.workers)
    plan.clocks.clear();
  else
    plan.clocks[0] = plan.start;
  for (std::uint32_t server = 0; server < plan.servers; ++server)
    plan.server_ranks.push_back(2 * server + static_cast<std::uint32_t>(r.below(2)));
  return plan;
}

struct Draw {
  Random& random;
  std::size_t floats;

  Message operator()(Challenge m) {
    m.highest = static_cast<std::uint16_t>(m.lowest + random.below(65534)), fill(random, m.nonce);
    return m;
  }
  Message operator()(Hello m) {
    m.purpose = one_of(random, {Purpose::kRows, Purpose::kCoordination, Purpose::kCopies}),
    m.rank = random.word(), m.incarnation = random.word64();
    fill(random, m.configuration), fill(random, m.nonce), fill(random, m.proof);
    return m;
  }
  Message operator()(Claim m) {
    m.whom = random.word(), fill(random, m.key), fill(random, m.signature);
    return m;
  }
  Message operator()(Welcome m) {
    m.rank = random.word(), m.incarnation = random.word64(), fill(random, m.proof);
    return m;
  }
  Message operator()(Refuse) {
    return Refuse{random_code(random), random_text(random, kMaxReasonBytes)};
  }
  Message operator()(Ping) { return Ping{random_clock(random)}; }
  Message operator()(Bye) { return Bye{}; }
  Message operator()(Offer m) {
    m.name = random_text(random, kMaxNameBytes), m.bytes = random.word64(), fill(random, m.key);
    return m;
  }
  Message operator()(Taken) { return Taken{random.word64(), random.word64()}; }
  Message operator()(PlanMessage) { return PlanMessage{random_plan(random)}; }
  Message operator()(Init) {
    return Init{random.word(), random_part(random), random_payload(random, floats), random.word()};
  }
  Message operator()(Ready) { return Ready{random.word(), random.word()}; }
  Message operator()(Push) {
    Push m{.row = random.word(),
           .clock = random_clock(random),
           .base = random_clock(random),
           .kind = one_of(random, {ContributionKind::kGradient, ContributionKind::kDelta,
                                   ContributionKind::kWeights}),
           .rate = random.unit()};
    m.payload = random_payload(random, floats);
    m.weight = m.payload.bytes.empty() ? 0 : 1 - random.unit();
    m.generation = random.word();
    return m;
  }
  Message operator()(Get) {
    return Get{random.word(), random_clock(random), random_part(random), random.word()};
  }
  Message operator()(RowMessage) {
    return RowMessage{random.word(),       random_clock(random),           random_clock(random),
                      random_part(random), random_payload(random, floats), random.word()};
  }
  Message operator()(NeedPush) {
    return NeedPush{random.word(), random_clock(random), random.word()};
  }
  Message operator()(Retire) { return Retire{random_clock(random), random.word()}; }
  Message operator()(Norm) {
    return Norm{random_clock(random), static_cast<std::uint16_t>(random.word()),
                std::bit_cast<double>(random.word64()), random.word()};
  }
  Message operator()(NormTotal) {
    return NormTotal{random_clock(random), std::bit_cast<double>(random.word64()), random.word()};
  }
  Message operator()(Update) {
    Update m{.row = random.word(),
             .number = random.word64(),
             .apply = one_of(random, {Apply::kRule, Apply::kAdd, Apply::kElastic}),
             .scale = random.unit(),
             .rate = random.unit()};
    for (std::size_t n = random.below(5); n > 0; --n)
      m.merged.push_back(
          {static_cast<std::uint16_t>(random.word()), random_clock(random), random.below(2) == 0});
    m.payload = random_payload(random, floats);
    m.generation = random.word();
    return m;
  }
  Message operator()(Copied) { return Copied{random.word(), random.word64(), random.word()}; }
  Message operator()(Ask) {
    return Ask{random_topic(random), random_clock(random),
               random_text(random, random.below(8) == 0 ? 100'000 : 100)};
  }
  Message operator()(Answer) {
    return Answer{random_topic(random), random_clock(random),
                  random_text(random, random.below(8) == 0 ? 100'000 : 100)};
  }
  Message operator()(Directive) {
    return Directive{static_cast<DirectiveKind>(1 + random.below(6)), random_clock(random),
                     static_cast<Want>(random.below(5)), random_code(random),
                     random_text(random, kMaxReasonBytes)};
  }
};

template <std::size_t... I>
Message draw(Draw d, std::size_t index, std::index_sequence<I...>) {
  Message result;
  ((I == index ? void(result = d(std::variant_alternative_t<I, Message>{})) : void()), ...);
  return result;
}

}  // namespace

std::string whole(const Frame& frame) {
  const std::span<const std::byte> payload = frame.payload.bytes;
  return frame.head + std::string(reinterpret_cast<const char*>(payload.data()), payload.size());
}
std::string whole(const Message& message) { return whole(encode(message, 0)); }

Payload owned(std::vector<float> numbers) {
  const auto owner = std::make_shared<const std::vector<float>>(std::move(numbers));
  return as_payload({*owner, owner});
}

std::shared_ptr<const SigningKey> golden_key() {
  return std::make_shared<const SigningKey>(counting<SigningKey::Seed>(128));
}

std::vector<std::pair<std::string, Message>> golden_messages() {
  const Nonce first = counting<Nonce>(0), second = counting<Nonce>(16);
  const Digest configuration = counting<Digest>(64);
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  return {
      {"challenge", Challenge{12, 12, first}},
      // The proofs, and the signature below, were computed by another program.
      {"hello",
       Hello{12, 12, Purpose::kRows, 3, 0x1122334455667788, configuration, second,
             digest_of("a4ceb8a05f69386be230be75038b58998f1ea2660cd76a44da34e6d500332e6d")}},
      {"welcome",
       Welcome{12, 0, 0x99aabbccddeeff00,
               digest_of("58162109e4e9a763cad5daec6bb23856603181c939d049c07e41c3e3f2a17a79")}},
      {"refuse", Refuse{Code::kConfig, "The token is another one."}},
      {"ping", Ping{-1}},
      {"bye", Bye{}},
      {"plan", PlanMessage{golden_plan()}},
      {"init", Init{1, Part::kHistory, owned({1, -2.5f, 0.1f}), 3}},
      {"ready", Ready{12, 3}},
      {"push",
       Push{0x01020304, 41, 39, ContributionKind::kGradient, 1, 0.01f, owned({0.5f, -0.25f}), 3}},
      {"push_nothing", Push{5, 41, 39, ContributionKind::kDelta, 0, 0.01f, {}, 3}},
      {"get", Get{6, 42, Part::kHistory2, 3}},
      {"row", RowMessage{6, 42, 40, Part::kWeights, owned({3, 1e-40f, minus_infinity}), 3}},
      {"need_push", NeedPush{6, 42, 3}},
      {"retire", Retire{43, 3}},
      {"norm", Norm{44, 1, 2.25, 3}},
      {"norm_total", NormTotal{44, 5.5, 3}},
      {"ask", Ask{Topic::kJoin, 0,
                  encode(JoinBody{2, true, false, "host-b", "10.0.0.3:29600",
                                  "net: a\nscheme: ssp 2\n", counting<PublicKey>(32)})}},
      {"answer", Answer{Topic::kRegroup, 2,
                        encode(RosterBody{{{0, 0, 0, "host-a", "10.0.0.2:29600", 41, 1.5, 0,
                                            counting<PublicKey>(96)},
                                           {1, -1, 1, "host-b", "10.0.0.3:29600", 0, 0, 2e6}},
                                          7,
                                          2,
                                          scheme_of("ssp 2"),
                                          "rank 2 leaves",
                                          true})}},
      {"directive",
       Directive{DirectiveKind::kAgreed, 500, Want::kSnapshot, Code::kPeer, "a snapshot"}},
      {"offer", Offer{"shoal-00112233", first, 1ull << 32}},
      {"taken", Taken{300, 299}},
      {"update", Update{7,
                        45,
                        Apply::kRule,
                        0.5f,
                        0.01f,
                        {{1, 41, true}, {0, 40, false}},
                        owned({0.75f, -1.5f}),
                        3}},
      {"copied", Copied{7, 45, 3}},
      {"claim", Claim{0, golden_key()->public_key(),
                      digest_of<Signature>(
                          "9a664f4f84d6093bdf8a3262d98aeadb17790e4de0690fa9fedc11b97dbc4e29"
                          "01afb61e0a888603a29a3dcf54887218a1eb6529d5a227c7c29366c8a785cf05")}},
  };
}

Message random_message(Random& random, std::size_t index, std::size_t floats) {
  return draw({random, floats}, index, std::make_index_sequence<std::variant_size_v<Message>>{});
}

}  // namespace shoal::table::test
