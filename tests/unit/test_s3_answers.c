/* What the S3 store reads of answers: texts of XML, dates, endpoints. All of it may be hostile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../storage/objects_s3_wire.h"
#include "../../storage/s3_xml.h"

static struct s3_slice slice(const char *text)
{
    return (struct s3_slice){text, strlen(text)};
}

static void assert_text(const char *xml, const char *name, const char *want)
{
    char text[64];
    assert_true(s3_xml_text(slice(xml), name, text, sizeof text));
    assert_string_equal(text, want);
}

static void assert_none(const char *xml, const char *name)
{
    char text[8] = "before";
    assert_false(s3_xml_text(slice(xml), name, text, sizeof text));
    assert_string_equal(text, "");
}

static void test_a_text_is_found_by_its_local_name(void **state)
{
    (void)state;
    assert_text("<?xml version=\"1.0\"?>\n<Error><Code>SlowDown</Code></Error>", "Code",
                "SlowDown");
    assert_text("<s3:Error xmlns:s3='u'><s3:Code >X</s3:Code></s3:Error>", "Code", "X");
    assert_text("<CodeName>no</CodeName><Code a='b'>yes</Code>", "Code", "yes");
    assert_text("<Code/>", "Code", "");
    assert_text("   \n<Code></Code>", "Code", "");
}

static void test_entities_are_resolved(void **state)
{
    (void)state;
    assert_text("<K>a&amp;b&lt;c&gt;d&quot;e&apos;f&#65;&#x42;</K>", "K", "a&b<c>d\"e'fAB");
    assert_none("<K>&unknown;</K>", "K");
    assert_none("<K>&#0;</K>", "K");
    assert_none("<K>&#9999999999;</K>", "K");
    assert_text("<K>a & b</K>", "K", "a & b");
}

static void test_what_does_not_end_or_fit_is_none(void **state)
{
    (void)state;
    assert_none("", "K");
    assert_none("<K>text", "K");
    assert_none("<K", "K");
    assert_none("<K>a</L>", "K");
    assert_none("</K>", "K");
    assert_none("<K>much too long</K>", "K");
}

static void test_elements_are_walked_in_order(void **state)
{
    struct s3_slice in = slice("<L><U><Id>1</Id></U><U/><U><Id>2</Id></U></L>"), one;
    const char *want[] = {"1", "", "2"};
    char text[8];
    size_t n = 0;
    (void)state;
    while (s3_xml_next(&in, "U", &one)) {
        assert_true(n < 3);
        (void)s3_xml_text(one, "Id", text, sizeof text);
        assert_string_equal(text, want[n++]);
    }
    assert_int_equal(n, 3);
}

static void test_http_dates(void **state)
{
    (void)state;
    assert_int_equal(s3_http_date("Fri, 24 May 2013 00:00:00 GMT"), 1369353600);
    assert_int_equal(s3_http_date("Thu, 01 Jan 1970 00:00:01 GMT"), 1);
    assert_int_equal(s3_http_date(""), -1);
    assert_int_equal(s3_http_date("yesterday"), -1);
    assert_int_equal(s3_http_date("Fri, 24 anF 2013 00:00:00 GMT"), -1);
}

static void assert_endpoint(const char *url, const char *bucket, const char *scheme,
                            const char *host)
{
    struct s3_endpoint got;
    struct err e;
    assert_int_equal(s3_endpoint_parse(url, bucket, &got, &e), 0);
    assert_string_equal(got.scheme, scheme);
    assert_string_equal(got.host, host);
}

static void test_endpoints_as_curl_says_their_hosts(void **state)
{
    (void)state;
    assert_endpoint("https://S3.Example.org", NULL, "https", "s3.example.org");
    assert_endpoint("https://s3.example.org:443/", NULL, "https", "s3.example.org");
    assert_endpoint("http://s3.example.org:80", NULL, "http", "s3.example.org");
    assert_endpoint("http://127.0.0.1:9000", NULL, "http", "127.0.0.1:9000");
    assert_endpoint("HTTP://[::1]:9000", NULL, "http", "[::1]:9000");
    assert_endpoint("https://s3.example.org", "bucket", "https", "bucket.s3.example.org");
}

static void test_what_is_no_endpoint_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "s3.example.org",
                                      "ftp://s3.example.org",
                                      "https://",
                                      "https://:443",
                                      "https://:9000",
                                      "https://host/path",
                                      "https://host?query",
                                      "https://user@host",
                                      "https://ho st",
                                      "https://host\r\nX: y"};
    struct s3_endpoint got;
    struct err e;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (s3_endpoint_parse(bad[i], NULL, &got, &e) == 0) {
            fail_msg("taken: %s", bad[i]);
        }
        assert_int_equal(e.code, ERR_INVALID_REQUEST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_text_is_found_by_its_local_name),
        cmocka_unit_test(test_entities_are_resolved),
        cmocka_unit_test(test_what_does_not_end_or_fit_is_none),
        cmocka_unit_test(test_elements_are_walked_in_order),
        cmocka_unit_test(test_http_dates),
        cmocka_unit_test(test_endpoints_as_curl_says_their_hosts),
        cmocka_unit_test(test_what_is_no_endpoint_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
