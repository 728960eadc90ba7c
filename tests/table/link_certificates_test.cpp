// Encrypted connections whose ends show certificates.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "shoal/base/file.h"
#include "shoal/table/link/handshake.h"
#include "shoal/table/link/link.h"
#include "shoal/table/link/tls.h"
#include "support/certificates.h"
#include "support/expect.h"
#include "support/faulty_link.h"
#include "support/links.h"
#include "support/messages.h"

namespace shoal::table::link_certificates_test {
namespace {

using shoal::test::FaultyLink;
using test::Authority;
using test::certificates;
using test::CertificateTerms;
using test::Ends;
using test::LaxTls;
using test::Pem;
using test::PlainSocket;
using test::put_files;
using test::whole;

constexpr std::size_t kChallenge = kHeaderSize + 20, kHello = kHeaderSize + 97;

class LinkCertificates : public testing::Test {
 protected:
  LinkCertificates() { std::filesystem::create_directories(folder_); }
  ~LinkCertificates() override { std::filesystem::remove_all(folder_); }
  // Returns files of this name with a certificate of the CA, which trusts that CA.
  CertificateFiles files(const std::string& name, const Authority& ca) {
    return put_files(folder_ + "/" + name, ca.sign(name), ca.certificate());
  }
  // Returns the options of an end with these files; none: without certificates.
  static LinkOptions options(const std::optional<CertificateFiles>& files) {
    return {.encrypt = Encrypt::kAlways, .certificates = files ? certificates(*files) : nullptr};
  }
  static auto nobody() {
    return [](const PeerName&) {
      ADD_FAILURE() << "it came in";
      return Status();
    };
  }

  const std::string folder_ = str(testing::TempDir(), "link_certificates_", ::getpid());
  const Authority ca_{"Shoal CA"}, other_{"Other CA"};
};

// ---- what arrives ----

TEST_F(LinkCertificates, RowsArriveAndNobodyElseReadsThem) {
  Ends ends(options(files("far", ca_)));
  ends.options = options(files("near", ca_));
  FaultyLink wire(ends.listener.port);
  ends.join(wire.port());
  EXPECT_TRUE(ends.near_link->peer().encrypted && ends.far_link->peer().encrypted);
  const Message ask = Ask{Topic::kGather, 1, std::string(200'000, 'q')};
  ends.near_link->send(ask);
  ends.far_link->send(ask);
  for (test::Ear* const ear : {&ends.near, &ends.far}) {
    ASSERT_TRUE(ear->wait([&] { return ear->heard.size() == 1; }));
    EXPECT_EQ(whole(ear->heard[0]), whole(ask));
  }
  const std::string from_near = wire.came_from(0), from_far = wire.came_from(1);
  EXPECT_EQ(from_near[0], Tls::kFirstByte);
  EXPECT_EQ(from_near.find("SHOL"), std::string::npos);
  EXPECT_EQ(from_far.rfind("SHOL"), 0u) << "the Challenge alone is in clear";
  EXPECT_EQ((from_near + from_far).find("qqqqqqqq"), std::string::npos);
}

TEST_F(LinkCertificates, ACaMayCertifyTheCaThatSigns) {
  const Authority between("CA of a department", &ca_);
  Ends ends(options(files("far", ca_)));
  ends.options = options(put_files(folder_ + "/near", between.sign("near"), ca_.certificate()));
  ends.join();
}

// A CA is replaced: the certificates of the new one are taken from the next connection on.
TEST_F(LinkCertificates, AreReadAgainWhenTheFilesChange) {
  Ends ends(options(files("far", ca_)));
  const LinkOptions before = options(files("near", ca_)), after = options(files("later", other_));
  ends.options = after;
  (void)ends.refused(ends.address());
  put_files(folder_ + "/far", {"no PEM", "nor this"}, "nor that");
  ends.options = before;
  ends.join();  // what was read before stays in use
  const auto near = ends.near_link, far = ends.far_link;
  files("far", other_);
  ends.options = after;
  ends.join();
  ends.options = before;
  EXPECT_HAS(ends.refused(ends.address()).message, "another CA");
}

// ---- what is refused ----

TEST_F(LinkCertificates, FilesThatCannotBeUsedSayWhy) {
  const Pem own = ca_.sign("machine-7");
  const std::string ca = ca_.certificate(), path = folder_ + "/own";
  const auto terms = [&](const CertificateTerms& given) { return ca_.sign("machine-7", given); };
  struct Case {
    Pem own;
    std::string authorities;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {{"", own.key}, ca, {"--tls_cert=", "own.crt: it holds no certificate in PEM form"}},
      {{own.certificate.substr(0, 200), own.key}, ca, {"own.crt: it holds no certificate"}},
      {{own.certificate, own.certificate}, ca, {"--tls_key=", "own.key: it holds no private key"}},
      {{own.certificate, test::with_passphrase(own.key)}, ca, {"own.key: a passphrase protects"}},
      {own, "?", {"--tls_ca=", "own.ca: it holds no certificate in PEM form"}},
      {{own.certificate, ca_.sign("x").key},
       ca,
       {"own.key: it is not the key of the certificate --tls_cert=", "own.crt"}},
      {terms({.from = -7200, .until = -3600}),
       ca,
       {"\"CN = machine-7\" expired on ", " GMT: renew"}},
      {terms({.from = 3600, .until = 7200}), ca, {"is valid only from ", "clock wrong?"}},
      {terms({.usage = "serverAuth"}), ca, {"may not be used at both ends", "extendedKeyUsage"}},
      {other_.sign("machine-7"),
       ca,
       {"\"CN = machine-7\" was signed by another CA (CN = Other CA)", "--tls_ca="}},
      {Authority("Shoal CA").sign("namesake"), ca, {"was signed by another CA (CN = Shoal CA)"}}};
  for (const Case& one : cases) {
    const auto read = read_certificates(put_files(path, one.own, one.authorities));
    ASSERT_FALSE(read.ok()) << one.words.back();
    EXPECT_EQ(read.error().code, Code::kUsage);
    for (const std::string& words : one.words) EXPECT_HAS(read.error().message, words);
  }
  EXPECT_TRUE(
      read_certificates(put_files(path, terms({.usage = "serverAuth,clientAuth"}), ca)).ok());
  for (const char* const gone : {".crt", ".key", ".ca"}) {
    const CertificateFiles files = put_files(path, own, ca);
    std::filesystem::remove(path + gone);
    const auto read = read_certificates(files);
    ASSERT_FALSE(read.ok());
    EXPECT_HAS(read.error().message, path + gone);
    EXPECT_HAS(read.error().message, "No such file");
  }
}

TEST_F(LinkCertificates, ThoseOfAnotherCaAreRefusedByEitherEnd) {
  const CertificateFiles far = files("far", ca_), stranger = files("stranger", other_);
  // It trusts both CAs, and is trusted by none of the far end's.
  const CertificateFiles trusting = put_files(folder_ + "/trusting", other_.sign("trusting"),
                                              ca_.certificate() + other_.certificate());
  for (const auto& [near, words] :
       {std::pair(stranger, "\"CN = far\" was signed by another CA (CN = Shoal CA)"),
        std::pair(trusting, "trusting.crt: its --tls_ca has not the CA that signed it")}) {
    Ends ends(options(far));
    ends.options = options(near);
    ends.admit = nobody();
    const Error why = ends.refused(ends.address());
    EXPECT_HAS(why.message, words);
    EXPECT_EQ(why.code, Code::kPeer);
    EXPECT_FALSE(worth_another_try(why));
  }
}

// The far end asks for a certificate, and looks at when it is valid.
TEST_F(LinkCertificates, NoneAndAnExpiredOneAreRefusedByTheEndThatAccepts) {
  for (const auto& [own, words] :
       {std::pair(Pem{}, "certificate required"),
        std::pair(ca_.sign("old", {.from = -7200, .until = -3600}), "certificate expired"),
        std::pair(ca_.sign("new", {.from = 3600, .until = 7200}), "bad certificate"),
        std::pair(ca_.sign("web", {.usage = "serverAuth"}), "unsupported certificate"),
        std::pair(other_.sign("other"), "unknown ca")}) {
    Ends ends(options(files("far", ca_)));
    ends.admit = nobody();
    PlainSocket socket(ends.listener.port);
    socket.hear(kChallenge);
    LaxTls tls(socket, false, own);
    EXPECT_TRUE(tls.open()) << "in TLS 1.3 this end is done first";
    EXPECT_EQ(tls.hear(1), "");
    EXPECT_HAS(tls.trouble(), words);
  }
}

TEST_F(LinkCertificates, AnExpiredOneIsRefusedByTheEndThatConnects) {
  for (const auto& [own, words, alert] :
       {std::tuple(ca_.sign("old", {.from = -7200, .until = -3600}), "\"CN = old\" expired on ",
                   "certificate expired"),
        std::tuple(other_.sign("other"), "was signed by another CA (CN = Other CA)",
                   "unknown ca")}) {
    Ends ends(options(files("near", ca_)));
    const Error why = ends.refused_by([&](PlainSocket socket) {
      socket.say(whole(Challenge{1, kProtocolVersion, {}}));
      LaxTls tls(socket, true, own);
      EXPECT_FALSE(tls.open());
      EXPECT_HAS(tls.trouble(), alert);
    });
    EXPECT_HAS(why.message, words);
    EXPECT_HAS(why.message, "near.ca");
    EXPECT_EQ(why.code, Code::kPeer);
  }
}

// A certificate may have expired since its process started.
TEST_F(LinkCertificates, TheEndWhoseCertificateIsRefusedSaysWhichItIs) {
  Ends ends(options(files("near", ca_)));
  for (const auto& [alert, words] : {std::pair('\x2d', "near.crt, has expired: it is valid until "),
                                     std::pair('\x30', "near.crt: its --tls_ca has not the CA")}) {
    const Error why = ends.refused_by([&, alert = alert](PlainSocket socket) {
      socket.say(whole(Challenge{1, kProtocolVersion, {}}));
      EXPECT_EQ(socket.hear(1)[0], Tls::kFirstByte);
      socket.say(std::string("\x15\x03\x03\x00\x02\x02", 6) + alert);
      socket.hear_all();
    });
    EXPECT_HAS(why.message, words);
  }
}

TEST_F(LinkCertificates, OneEndWithAndOneWithoutAreRefusedAndBothFlagsNamed) {
  const CertificateFiles own = files("own", ca_);
  for (const auto& [near, far, words] :
       {std::tuple(true, false, "The other end was started without --tls_cert"),
        std::tuple(false, true, "The other end was started with --tls_cert")}) {
    Ends ends(options(far ? std::optional(own) : std::nullopt));
    ends.options = options(near ? std::optional(own) : std::nullopt);
    ends.admit = nobody();
    const Error why = ends.refused(ends.address());
    EXPECT_HAS(why.message, words);
    EXPECT_HAS(why.message, "give all processes of the job --tls_cert, --tls_key and --tls_ca");
    EXPECT_FALSE(worth_another_try(why));
  }
}

TEST_F(LinkCertificates, AnotherTokenIsRefusedThoughTheCertificateIsRight) {
  Ends ends(options(files("far", ca_)));
  ends.options = options(files("near", ca_));
  ends.admit = nobody();
  Credentials other = test::credentials(1);
  other.token = "the token of another job";
  const Error why = ends.refused(ends.address(), other);
  EXPECT_HAS(why.message, "has another token");
  EXPECT_EQ(why.code, Code::kPeer);
}

// A process with a certificate of the CA, and without the token, stands between two that have both,
// and hands on what each says to the other.
TEST_F(LinkCertificates, OneInTheMiddleWithoutTheTokenIsRefused) {
  Ends ends(options(files("far", ca_)));
  ends.options = options(files("near", ca_));
  ends.admit = nobody();
  const Pem own = ca_.sign("between");
  const Error why = ends.refused_by([&](PlainSocket near) {
    PlainSocket far(ends.listener.port);
    near.say(far.hear(kChallenge));
    LaxTls to_near(near, true, own), to_far(far, false, own);
    ASSERT_TRUE(to_near.open() && to_far.open());
    to_far.say(to_near.hear(kHello));
    to_near.say(to_far.hear(kHeaderSize + 5));
    to_near.say(to_far.hear(4096));
  });
  EXPECT_HAS(why.message, "has another token");
}

}  // namespace
}  // namespace shoal::table::link_certificates_test
