"""What the artifacts of a test are kept in: the gateway's own disk, or a bucket of a real Ceph RGW."""

from artifacts import BUCKET, ArtifactTest, s3_config
from s3_servers import start_rgw


class ArtifactsOnDisk(ArtifactTest):
    def configure(self):
        pass

    def objects(self):
        return self.objects_on_disk()


class ArtifactsInBucket(ArtifactTest):
    """Of `server`, which setUpModule has to start; each test begins with none."""

    server = None

    @classmethod
    def start_server(cls):
        cls.server = start_rgw(BUCKET)

    def configure(self, port=None):
        """`port`: of a proxy before the server."""
        self.gateway.edit_config(s3_config(self.server, self.gateway.dir, port))
        for key in self.objects():
            self.server.client.ask("DELETE", f"/{BUCKET}/{key}")

    def objects(self):
        return self.server.client.keys(BUCKET)
