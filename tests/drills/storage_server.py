#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""storage_server.py - an S3 storage on the loopback address, for storage.sh.

Needs moto (pip install 'moto[server,s3,iam]'), which checks signatures and
permissions with Amazon's own botocore. Prints its address and the key and
secret of a user who may use the buckets `models` and `nowhere`, of which only
the first exists, and not the bucket `denied`. Commands come from standard
input: "damage KEY" flips a byte of an object, "steps PREFIX" prints which steps
there are, "parts KEY" in how many parts an object was sent. Ends with its
input."""
import json
import os
import sys

FREE_REQUESTS = 5  # those below that make users and buckets
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = str(FREE_REQUESTS)

import boto3  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402

POLICY = {
    "Version": "2012-10-17",
    "Statement": [{
        "Effect": "Allow", "Action": "s3:*",
        "Resource": ["arn:aws:s3:::models", "arn:aws:s3:::models/*",
                     "arn:aws:s3:::nowhere", "arn:aws:s3:::nowhere/*"]}],
}


def client(service, url, key="first", secret="first"):
    return boto3.client(service, endpoint_url=url, region_name="us-east-1",
                        aws_access_key_id=key, aws_secret_access_key=secret)


def command(storage, words):
    if words[0] == "damage":
        body = storage.get_object(Bucket="models", Key=words[1])["Body"].read()
        body = body[:-1] + bytes([body[-1] ^ 1])
        storage.put_object(Bucket="models", Key=words[1], Body=body)
        return "damaged"
    if words[0] == "parts":
        tag = storage.head_object(Bucket="models", Key=words[1])["ETag"]
        return tag.strip('"').partition("-")[2] or "whole"
    found = storage.list_objects_v2(Bucket="models", Prefix=words[1] + "/step-")
    keys = [entry["Key"].split("/") for entry in found.get("Contents", [])]
    return " ".join(sorted({key[-2] for key in keys}))


def main():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://127.0.0.1:%d" % server.get_host_and_port()[1]
    iam, storage = client("iam", url), client("s3", url)
    storage.create_bucket(Bucket="models")
    storage.create_bucket(Bucket="denied")
    iam.create_user(UserName="trainer")
    iam.put_user_policy(UserName="trainer", PolicyName="models",
                        PolicyDocument=json.dumps(POLICY))
    key = iam.create_access_key(UserName="trainer")["AccessKey"]
    print(url, key["AccessKeyId"], key["SecretAccessKey"], flush=True)
    storage = client("s3", url, key["AccessKeyId"], key["SecretAccessKey"])
    for line in sys.stdin:
        print(command(storage, line.split()), flush=True)


main()
