terraform {
  backend "local" {}
}

variable "name" {
  type = string
}

variable "region" {
  type = string
}

# Needs no provider and no cloud: it remembers what it is given.
resource "terraform_data" "network" {
  input = {
    name   = var.name
    region = var.region
    cidr   = "10.0.0.0/16"
  }
}

output "network" {
  value = terraform_data.network.output.name
}
